    .cfi_startproc
    endbr64
    // rdi, rsi: the caller's handle and name. The return address stays where it is.
    push rdi
    .cfi_adjust_cfa_offset 8
    push rsi
    .cfi_adjust_cfa_offset 8
    sub rsp, 8
    .cfi_adjust_cfa_offset 8
    call {resolve}
    add rsp, 8
    .cfi_adjust_cfa_offset -8
    pop rsi
    .cfi_adjust_cfa_offset -8
    pop rdi
    .cfi_adjust_cfa_offset -8
    // rax: the answer, or zero. rdx: the next dlsym.
    test rax, rax
    jne 2f
    jmp rdx
2:
    ret
    .cfi_endproc
