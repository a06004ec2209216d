//! Nodes of graphs that are made by hand, and what can be asked about nodes.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use cuda_sys::{Context, CuError, CuResult, Function, Graph as GraphHandle, GraphNode, HostFn, Memcpy3D};

use super::copy_calls;
use super::graph::{Graph, named, named_node};
use super::launch::collect;
use super::op::{Op, UserData};
use crate::args;
use crate::driver::driver;
use crate::slab::address_of;

/// The part of `CUDA_KERNEL_NODE_PARAMS` that both its versions share.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct KernelParams {
    function: Function,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
}

/// `CUDA_HOST_NODE_PARAMS`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct HostParams {
    function: HostFn,
    data: *mut c_void,
}

/// `CUDA_MEMSET_NODE_PARAMS`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct FillParams {
    to: u64,
    pitch: usize,
    value: c_uint,
    unit: c_uint,
    width: usize,
    height: usize,
}

/// Adds a node and writes its handle.
///
/// # Safety
/// The pointers are as the driver's functions demand.
unsafe fn add(
    place: *mut GraphNode,
    handle: GraphHandle,
    dependencies: *const GraphNode,
    count: usize,
    op: impl FnOnce() -> CuResult<Op>,
) -> CuResult {
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(place) }?;
    let graph = named(handle)?;
    // SAFETY: the caller's promise.
    let after = graph.numbers(unsafe { args::list(dependencies, count) }?)?;
    let number = graph.add(op()?, after);
    let nodes = crate::lock(&graph.nodes);
    place.write(nodes.get(number).ok_or(CuError::OUT_OF_MEMORY)?.handle.handle());
    Ok(())
}

pub(crate) unsafe fn cuGraphAddEmptyNode(
    ph_graph_node: *mut GraphNode,
    h_graph: GraphHandle,
    dependencies: *const GraphNode,
    num_dependencies: usize,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { add(ph_graph_node, h_graph, dependencies, num_dependencies, || Ok(Op::Nothing)) }
}

/// # Safety
/// `params` is null or the parameters of a kernel node.
unsafe fn kernel_op(params: *const c_void) -> CuResult<Op> {
    // SAFETY: the caller's promise.
    let params = unsafe { args::read(params.cast::<KernelParams>()) }?;
    // SAFETY: the caller's promise.
    unsafe { collect(driver()?, params.function.0.addr(), params.grid, params.params, params.extra) }
        .map(Op::Kernel)
}

pub(crate) unsafe fn cuGraphAddKernelNode_v2(
    ph_graph_node: *mut GraphNode,
    h_graph: GraphHandle,
    dependencies: *const GraphNode,
    num_dependencies: usize,
    node_params: *const c_void,
) -> CuResult {
    // SAFETY: the caller's promise.
    let op = || unsafe { kernel_op(node_params) };
    // SAFETY: the caller's promise.
    unsafe { add(ph_graph_node, h_graph, dependencies, num_dependencies, op) }
}

pub(crate) unsafe fn cuGraphAddKernelNode(
    ph_graph_node: *mut GraphNode,
    h_graph: GraphHandle,
    dependencies: *const GraphNode,
    num_dependencies: usize,
    node_params: *const c_void,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuGraphAddKernelNode_v2(ph_graph_node, h_graph, dependencies, num_dependencies, node_params) }
}

pub(crate) unsafe fn cuGraphAddHostNode(
    ph_graph_node: *mut GraphNode,
    h_graph: GraphHandle,
    dependencies: *const GraphNode,
    num_dependencies: usize,
    node_params: *const c_void,
) -> CuResult {
    let op = || {
        // SAFETY: the caller's promise.
        let params = unsafe { args::read(node_params.cast::<HostParams>()) }?;
        Ok(Op::Host(params.function, UserData(params.data)))
    };
    // SAFETY: the caller's promise.
    unsafe { add(ph_graph_node, h_graph, dependencies, num_dependencies, op) }
}

pub(crate) unsafe fn cuGraphAddMemsetNode(
    ph_graph_node: *mut GraphNode,
    h_graph: GraphHandle,
    dependencies: *const GraphNode,
    num_dependencies: usize,
    memset_params: *const c_void,
    ctx: Context,
) -> CuResult {
    let op = || {
        // SAFETY: the caller's promise.
        let params = unsafe { args::read(memset_params.cast::<FillParams>()) }?;
        let context = driver()?.contexts.get(ctx)?;
        let unit = usize::try_from(params.unit).unwrap_or(0);
        let rows = (params.pitch, params.width.saturating_mul(unit), params.height);
        copy_calls::fill(context, args::size(params.to), params.value, unit, rows).map(Op::Fill)
    };
    // SAFETY: the caller's promise.
    unsafe { add(ph_graph_node, h_graph, dependencies, num_dependencies, op) }
}

pub(crate) unsafe fn cuGraphAddMemcpyNode(
    ph_graph_node: *mut GraphNode,
    h_graph: GraphHandle,
    dependencies: *const GraphNode,
    num_dependencies: usize,
    copy_params: *const c_void,
    ctx: Context,
) -> CuResult {
    let op = || {
        // SAFETY: the caller's promise.
        let params = unsafe { args::read(copy_params.cast::<Memcpy3D>()) }?;
        let context = driver()?.contexts.get(ctx)?;
        let copy = copy_calls::describe(&copy_calls::rows_of(params)?, context, context)?;
        Ok(Op::Copy(Arc::new(copy)))
    };
    // SAFETY: the caller's promise.
    unsafe { add(ph_graph_node, h_graph, dependencies, num_dependencies, op) }
}

pub(crate) unsafe fn cuGraphAddChildGraphNode(
    ph_graph_node: *mut GraphNode,
    h_graph: GraphHandle,
    dependencies: *const GraphNode,
    num_dependencies: usize,
    child_graph: GraphHandle,
) -> CuResult {
    let op = || named(child_graph)?.in_order().map(Op::Graph);
    // SAFETY: the caller's promise.
    unsafe { add(ph_graph_node, h_graph, dependencies, num_dependencies, op) }
}

pub(crate) unsafe fn cuGraphAddDependencies(
    h_graph: GraphHandle,
    from: *const GraphNode,
    to: *const GraphNode,
    num_dependencies: usize,
) -> CuResult {
    let graph = named(h_graph)?;
    // SAFETY: the caller's promise.
    let before = graph.numbers(unsafe { args::list(from, num_dependencies) }?)?;
    // SAFETY: the caller's promise.
    let after = graph.numbers(unsafe { args::list(to, num_dependencies) }?)?;
    let mut nodes = crate::lock(&graph.nodes);
    for (before, after) in before.into_iter().zip(after) {
        if let Some(node) = nodes.get_mut(after) {
            node.after.push(before);
        }
    }
    Ok(())
}

pub(crate) unsafe fn cuGraphAddDependencies_v2(
    h_graph: GraphHandle,
    from: *const GraphNode,
    to: *const GraphNode,
    _edge_data: *const c_void,
    num_dependencies: usize,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuGraphAddDependencies(h_graph, from, to, num_dependencies) }
}

pub(crate) unsafe fn cuGraphDestroyNode(h_node: GraphNode) -> CuResult {
    let driver = driver()?;
    let node = named_node(h_node)?;
    let graph = node.graph()?;
    let number = node.number();
    let mut nodes = crate::lock(&graph.nodes);
    if let Some(data) = nodes.get_mut(number) {
        data.removed = true;
    }
    for other in nodes.iter_mut() {
        other.after.retain(|&before| before != number);
    }
    driver.graphs.nodes.remove(address_of(node));
    driver.graphs.nodes.recycle(node);
    Ok(())
}

pub(crate) unsafe fn cuGraphKernelNodeSetParams_v2(
    h_node: GraphNode,
    node_params: *const c_void,
) -> CuResult {
    let node = named_node(h_node)?;
    // SAFETY: the caller's promise.
    let op = unsafe { kernel_op(node_params) }?;
    let graph = node.graph()?;
    let mut nodes = crate::lock(&graph.nodes);
    match nodes.get_mut(node.number()) {
        Some(data) if matches!(data.op, Op::Kernel(_)) => data.op = op,
        _ => return Err(CuError::INVALID_VALUE),
    }
    Ok(())
}

/// The handles of some nodes: all that fit, or only how many there are.
///
/// # Safety
/// As for `cuGraphGetNodes`.
unsafe fn list(
    graph: &Graph,
    nodes: *mut GraphNode,
    count: *mut usize,
    wanted: impl Fn(&[usize]) -> bool,
) -> CuResult {
    // SAFETY: the caller's promise.
    let room = unsafe { args::read(count) }?;
    let all: Vec<GraphNode> = crate::lock(&graph.nodes)
        .iter()
        .filter(|node| !node.removed && wanted(&node.after))
        .map(|node| node.handle.handle())
        .collect();
    // SAFETY: the caller's promise.
    unsafe { args::out(count) }?.write(if nodes.is_null() { all.len() } else { room.min(all.len()) });
    if nodes.is_null() {
        return Ok(());
    }
    for at in 0..room {
        let node = all.get(at).copied().unwrap_or(GraphNode::NULL);
        // SAFETY: the caller's promise: there is room for this many. What is left over becomes null.
        unsafe { nodes.wrapping_add(at).write(node) };
    }
    Ok(())
}

pub(crate) unsafe fn cuGraphGetNodes(
    graph: GraphHandle,
    nodes: *mut GraphNode,
    count: *mut usize,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { list(named(graph)?, nodes, count, |_| true) }
}

pub(crate) unsafe fn cuGraphGetRootNodes(
    graph: GraphHandle,
    nodes: *mut GraphNode,
    count: *mut usize,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { list(named(graph)?, nodes, count, <[usize]>::is_empty) }
}

pub(crate) unsafe fn cuGraphNodeGetType(node: GraphNode, kind: *mut c_uint) -> CuResult {
    driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(kind) }?;
    let node = named_node(node)?;
    let graph = node.graph()?;
    let nodes = crate::lock(&graph.nodes);
    let data = nodes.get(node.number()).ok_or(CuError::INVALID_VALUE)?;
    place.write(match data.op {
        Op::Kernel(_) => 0,
        Op::Copy(_) => 1,
        Op::Fill(_) => 2,
        Op::Host(..) | Op::Callback(..) => 3,
        Op::Graph(_) => 4,
        Op::Nothing => 5,
        Op::WaitShared(..) => 6,
        Op::Record(..) | Op::RecordShared(..) => 7,
        Op::Free(_) => 11,
        Op::Write(_) | Op::Wait(_) => 12,
    });
    Ok(())
}
