//! Graphs: nodes of work with their order, made by a capture or by hand, and what can be launched of them.
//!
//! A launch runs the nodes one after the other, each after those it depends on.

#![allow(non_snake_case, reason = "the driver's own names")]

use std::ffi::{c_char, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cuda_sys::{CuError, CuResult, Graph as GraphHandle, GraphExec as ExecHandle, GraphNode, Stream};

use super::op::Op;
use crate::args;
use crate::driver::{Driver, driver};
use crate::slab::{Slab, address_of};
use crate::trace::violation;

/// One node. Its handle is its address.
#[derive(Debug, Default)]
pub(crate) struct Node {
    graph: AtomicPtr<Graph>,
    number: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct NodeData {
    pub(super) handle: &'static Node,
    pub(super) op: Op,
    /// Numbers of the nodes it comes after.
    pub(super) after: Vec<usize>,
    pub(super) removed: bool,
}

/// One graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(super) nodes: Mutex<Vec<NodeData>>,
    /// What was last shown as the dependencies of a capture.
    shown: Mutex<Vec<GraphNode>>,
}

/// One executable graph.
#[derive(Debug, Default)]
pub(crate) struct Exec {
    ops: Mutex<Option<Arc<[Op]>>>,
}

/// All graphs of the process.
#[derive(Debug)]
pub(crate) struct Graphs {
    graphs: Slab<Graph>,
    pub(super) nodes: Slab<Node>,
    execs: Slab<Exec>,
}

impl Graphs {
    pub(crate) fn new() -> Self {
        Self { graphs: Slab::new(), nodes: Slab::new(), execs: Slab::new() }
    }
}

impl Node {
    pub(super) fn handle(&'static self) -> GraphNode {
        GraphNode(std::ptr::with_exposed_provenance_mut(address_of(self)))
    }

    pub(super) fn graph(&self) -> CuResult<&'static Graph> {
        // SAFETY: stored by `add` before the handle was given out; graphs are never freed.
        unsafe { self.graph.load(Ordering::Acquire).as_ref() }.ok_or(CuError::INVALID_HANDLE)
    }

    pub(super) fn number(&self) -> usize {
        self.number.load(Ordering::Acquire)
    }
}

impl Graph {
    pub(super) fn create(driver: &Driver) -> &'static Self {
        driver.graphs.graphs.insert(|graph| {
            crate::lock(&graph.nodes).clear();
            crate::lock(&graph.shown).clear();
        })
    }

    pub(super) fn handle(&'static self) -> GraphHandle {
        GraphHandle(std::ptr::with_exposed_provenance_mut(address_of(self)))
    }

    /// Adds a node after others, and gives its number.
    pub(super) fn add(&'static self, op: Op, after: Vec<usize>) -> usize {
        let mut nodes = crate::lock(&self.nodes);
        let number = nodes.len();
        if let Ok(driver) = driver() {
            let handle = driver.graphs.nodes.insert(|node| {
                node.graph.store(std::ptr::from_ref(self).cast_mut(), Ordering::Release);
                node.number.store(number, Ordering::Release);
            });
            nodes.push(NodeData { handle, op, after, removed: false });
        }
        number
    }

    /// The numbers of nodes that are in this graph.
    pub(super) fn numbers(&'static self, handles: &[GraphNode]) -> CuResult<Vec<usize>> {
        handles
            .iter()
            .map(|&handle| {
                let node = named_node(handle)?;
                if std::ptr::eq(node.graph()?, self) {
                    Ok(node.number())
                } else {
                    Err(CuError::INVALID_VALUE)
                }
            })
            .collect()
    }

    /// The handles of nodes, at a place that stays until the next call for this graph.
    pub(super) fn shown_dependencies(&'static self, numbers: &[usize]) -> (*const GraphNode, usize) {
        let nodes = crate::lock(&self.nodes);
        let mut shown = crate::lock(&self.shown);
        shown.clear();
        shown.extend(numbers.iter().filter_map(|&number| nodes.get(number)).map(|node| node.handle.handle()));
        (shown.as_ptr(), shown.len())
    }

    /// Whether each of `from` is one of `to` or comes before one of them.
    pub(super) fn all_lead_to(&self, from: &[usize], to: &[usize]) -> bool {
        let nodes = crate::lock(&self.nodes);
        let mut reached: Vec<usize> = to.to_vec();
        let mut next = 0;
        while let Some(&number) = reached.get(next) {
            next += 1;
            for &before in nodes.get(number).map_or(&[][..], |node| &node.after) {
                if !reached.contains(&before) {
                    reached.push(before);
                }
            }
        }
        from.iter().all(|number| reached.contains(number))
    }

    /// The work of all nodes, each after those it depends on; fails for a circle.
    pub(super) fn in_order(&self) -> CuResult<Arc<[Op]>> {
        let nodes = crate::lock(&self.nodes);
        let mut done: Vec<bool> = nodes.iter().map(|node| node.removed).collect();
        let mut ops = Vec::with_capacity(nodes.len());
        loop {
            let mut moved = false;
            for (number, node) in nodes.iter().enumerate() {
                let is_done = |number: &usize| done.get(*number).copied().unwrap_or(true);
                if is_done(&number) || !node.after.iter().all(is_done) {
                    continue;
                }
                ops.push(node.op.clone());
                moved = true;
                if let Some(done) = done.get_mut(number) {
                    *done = true;
                }
            }
            if !moved {
                break;
            }
        }
        if done.contains(&false) { Err(CuError::INVALID_VALUE) } else { Ok(ops.into()) }
    }
}

/// The graph with this handle.
pub(super) fn named(handle: GraphHandle) -> CuResult<&'static Graph> {
    driver()?.graphs.graphs.get(handle.0.addr()).ok_or_else(|| {
        violation(format_args!("{handle:?} is not a graph"));
        CuError::INVALID_VALUE
    })
}

/// The node with this handle.
pub(super) fn named_node(handle: GraphNode) -> CuResult<&'static Node> {
    driver()?.graphs.nodes.get(handle.0.addr()).ok_or_else(|| {
        violation(format_args!("{handle:?} is not a node"));
        CuError::INVALID_VALUE
    })
}

fn named_exec(handle: ExecHandle) -> CuResult<&'static Exec> {
    driver()?.graphs.execs.get(handle.0.addr()).ok_or_else(|| {
        violation(format_args!("{handle:?} is not an executable graph"));
        CuError::INVALID_VALUE
    })
}

pub(crate) unsafe fn cuGraphCreate(ph_graph: *mut GraphHandle, flags: c_uint) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(ph_graph) }?;
    if flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    place.write(Graph::create(driver).handle());
    Ok(())
}

pub(crate) unsafe fn cuGraphDestroy(h_graph: GraphHandle) -> CuResult {
    let driver = driver()?;
    let graph = named(h_graph)?;
    if driver.graphs.graphs.remove(address_of(graph)).is_none() {
        return Err(CuError::INVALID_VALUE);
    }
    let nodes = std::mem::take(&mut *crate::lock(&graph.nodes));
    for node in nodes.iter().filter(|node| !node.removed) {
        driver.graphs.nodes.remove(address_of(node.handle));
        driver.graphs.nodes.recycle(node.handle);
    }
    driver.graphs.graphs.recycle(graph);
    Ok(())
}

pub(crate) unsafe fn cuGraphClone(ph_graph_clone: *mut GraphHandle, original_graph: GraphHandle) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(ph_graph_clone) }?;
    let original = named(original_graph)?;
    let clone = Graph::create(driver);
    let copied: Vec<(Op, Vec<usize>)> =
        crate::lock(&original.nodes).iter().map(|node| (node.op.clone(), node.after.clone())).collect();
    for (op, after) in copied {
        clone.add(op, after);
    }
    place.write(clone.handle());
    Ok(())
}

fn instantiate(place: *mut ExecHandle, handle: GraphHandle) -> CuResult {
    let driver = driver()?;
    // SAFETY: the promise of the caller of the exported function.
    let place = unsafe { args::out(place) }?;
    let ops = named(handle)?.in_order()?;
    let exec = driver.graphs.execs.insert(|exec| *crate::lock(&exec.ops) = Some(ops));
    place.write(ExecHandle(std::ptr::with_exposed_provenance_mut(address_of(exec))));
    Ok(())
}

pub(crate) unsafe fn cuGraphInstantiateWithFlags(
    ph_graph_exec: *mut ExecHandle,
    h_graph: GraphHandle,
    _flags: u64,
) -> CuResult {
    instantiate(ph_graph_exec, h_graph)
}

pub(crate) unsafe fn cuGraphInstantiate_v2(
    ph_graph_exec: *mut ExecHandle,
    h_graph: GraphHandle,
    _ph_error_node: *mut GraphNode,
    _log_buffer: *mut c_char,
    _buffer_size: usize,
) -> CuResult {
    instantiate(ph_graph_exec, h_graph)
}

pub(crate) unsafe fn cuGraphInstantiate(
    ph_graph_exec: *mut ExecHandle,
    h_graph: GraphHandle,
    _ph_error_node: *mut GraphNode,
    _log_buffer: *mut c_char,
    _buffer_size: usize,
) -> CuResult {
    instantiate(ph_graph_exec, h_graph)
}

pub(crate) unsafe fn cuGraphInstantiateWithParams(
    ph_graph_exec: *mut ExecHandle,
    h_graph: GraphHandle,
    _instantiate_params: *mut c_void,
) -> CuResult {
    instantiate(ph_graph_exec, h_graph)
}

pub(crate) unsafe fn cuGraphExecDestroy(h_graph_exec: ExecHandle) -> CuResult {
    let driver = driver()?;
    let exec = named_exec(h_graph_exec)?;
    if driver.graphs.execs.remove(address_of(exec)).is_none() {
        return Err(CuError::INVALID_VALUE);
    }
    crate::lock(&exec.ops).take();
    driver.graphs.execs.recycle(exec);
    Ok(())
}

pub(crate) unsafe fn cuGraphLaunch(h_graph: ExecHandle, h_stream: Stream) -> CuResult {
    let exec = named_exec(h_graph)?;
    let stream = super::stream::named(h_stream)?;
    let ops = crate::lock(&exec.ops).clone().ok_or(CuError::INVALID_VALUE)?;
    super::submit(stream, Op::Graph(ops), Vec::new()).map(|_| ())
}

/// There is nothing to upload.
pub(crate) unsafe fn cuGraphUpload(h_graph: ExecHandle, h_stream: Stream) -> CuResult {
    named_exec(h_graph)?;
    super::stream::named(h_stream).map(|_| ())
}

/// Takes the work of another graph of the same shape.
pub(crate) unsafe fn cuGraphExecUpdate_v2(
    h_graph_exec: ExecHandle,
    h_graph: GraphHandle,
    _result_info: *mut c_void,
) -> CuResult {
    let exec = named_exec(h_graph_exec)?;
    let ops = named(h_graph)?.in_order()?;
    let mut current = crate::lock(&exec.ops);
    let alike = current.as_ref().is_some_and(|current| {
        current.len() == ops.len() && current.iter().zip(ops.iter()).all(|(a, b)| a.name() == b.name())
    });
    if !alike {
        return Err(CuError::GRAPH_EXEC_UPDATE_FAILURE);
    }
    *current = Some(ops);
    Ok(())
}
