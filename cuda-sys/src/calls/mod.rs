//! The one list of driver calls: every function that `cuda.h` declares has exactly one class here.
//!
//! `for_each_call!` hands the whole list to a macro of the caller, one line per function that somebody
//! stands in front of; what needs no hook is in [`PASS`]. The list is held against the real header by a test,
//! so a function nobody has classed fails the build instead of slipping by.
//!
//! A line reads `class family fn name(arguments) on stream;`. The class says what a suspend does with the call (see
//! [`Class`](crate::Class)), the family says where the body of the hook lives, and `on` names the
//! stream whose capture lets a held call through (`config.stream`: a field behind a pointer). Every function returns
//! [`CuResult`](crate::CuResult). Names that end in `_ptsz` or `_ptds` are the forms for the per-thread default
//! stream; names without `_v2` where a `_v2` exists are the driver's oldest ABI, with 32-bit addresses.

mod asked;
mod memory;
mod object;
mod pass;

pub use pass::PASS;

/// Calls `$then!` with every call that has a hook: `class family fn name(arguments) on stream;`.
///
/// A macro has one body and a list one file too many, so each part of it hands all lines so far to the next.
#[macro_export]
macro_rules! for_each_call {
    ($then:path) => {
        $crate::with_memory_calls! { $then {
            launch gate fn cuGraphLaunch(h_graph: GraphExec, h_stream: Stream) on h_stream;
            launch gate fn cuGraphLaunch_ptsz(h_graph_exec: GraphExec, h_stream: Stream) on h_stream;
            launch gate fn cuLaunch(f: Function);
            launch gate fn cuLaunchCooperativeKernel(f: Function, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: Stream, kernel_params: *mut *mut c_void) on h_stream;
            launch gate fn cuLaunchCooperativeKernelMultiDevice(launch_params_list: *mut c_void, num_devices: c_uint, flags: c_uint);
            launch gate fn cuLaunchCooperativeKernel_ptsz(f: Function, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: Stream, kernel_params: *mut *mut c_void) on h_stream;
            launch gate fn cuLaunchGrid(f: Function, grid_width: c_int, grid_height: c_int);
            launch gate fn cuLaunchGridAsync(f: Function, grid_width: c_int, grid_height: c_int, h_stream: Stream) on h_stream;
            launch gate fn cuLaunchHostFunc(h_stream: Stream, func: HostFn, user_data: *mut c_void) on h_stream;
            launch gate fn cuLaunchHostFunc_ptsz(h_stream: Stream, func: HostFn, user_data: *mut c_void) on h_stream;
            launch gate fn cuLaunchKernel(f: Function, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: Stream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) on h_stream;
            launch gate fn cuLaunchKernelEx(config: *const LaunchConfig, f: Function, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) on config.stream;
            launch gate fn cuLaunchKernelEx_ptsz(config: *const LaunchConfig, f: Function, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) on config.stream;
            launch gate fn cuLaunchKernel_ptsz(f: Function, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint, block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: Stream, kernel_params: *mut *mut c_void, extra: *mut *mut c_void) on h_stream;
            launch gate fn cuStreamAddCallback(h_stream: Stream, callback: StreamCallback, user_data: *mut c_void, flags: c_uint) on h_stream;
            launch gate fn cuStreamAddCallback_ptsz(h_stream: Stream, callback: StreamCallback, user_data: *mut c_void, flags: c_uint) on h_stream;
        } }
    };
}
