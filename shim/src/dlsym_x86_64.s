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
    // rax: the answer. rdx: zero, or the dlsym to go on to.
    test rdx, rdx
    je 2f
    jmp rdx
2:
    ret
    .cfi_endproc
