//! Stream capture and graphs.

use std::ffi::c_uint;

use cuda_sys::{Graph, GraphExec};

use super::words::Words;
use super::work::named;
use super::{Answer, Session};
use crate::driver;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "capture" => capture(session, words),
        "end-capture" => end_capture(session, words),
        "instantiate" => instantiate(session, words),
        "launch-graph" => launch_graph(session, words),
        "exchange-mode" => exchange_mode(words),
        _ => return None,
    })
}

/// `capture STREAM global|thread|relaxed`
fn capture(session: &Session, words: &mut Words<'_>) -> Answer {
    let (stream, mode) = (named(session, words.word()?)?, mode(words)?);
    // SAFETY: a stream of this program.
    unsafe { driver::cuStreamBeginCapture_v2(stream, mode) }?;
    Ok(String::new())
}

fn mode(words: &mut Words<'_>) -> Result<c_uint, String> {
    match words.word()? {
        "global" => Ok(0),
        "thread" => Ok(1),
        "relaxed" => Ok(2),
        other => Err(format!("{other} is no capture mode")),
    }
}

/// `end-capture STREAM G`
fn end_capture(session: &Session, words: &mut Words<'_>) -> Answer {
    let (stream, name) = (named(session, words.word()?)?, words.word()?);
    let mut graph = Graph::NULL;
    // SAFETY: a place for the graph.
    unsafe { driver::cuStreamEndCapture(stream, &raw mut graph) }?;
    session.objects.graphs.put(name, graph);
    Ok(String::new())
}

/// `instantiate X G`
fn instantiate(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, graph) = (words.word()?, session.objects.graphs.get(words.word()?)?);
    let mut executable = GraphExec::NULL;
    // SAFETY: a place for the executable graph.
    unsafe { driver::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) }?;
    session.objects.executables.put(name, executable);
    Ok(String::new())
}

/// `launch-graph X STREAM`
fn launch_graph(session: &Session, words: &mut Words<'_>) -> Answer {
    let executable = session.objects.executables.get(words.word()?)?;
    let stream = named(session, words.word()?)?;
    // SAFETY: an executable graph and a stream of this program.
    unsafe { driver::cuGraphLaunch(executable, stream) }?;
    Ok(String::new())
}

/// `exchange-mode global|thread|relaxed`: the mode this thread had before, as a number.
fn exchange_mode(words: &mut Words<'_>) -> Answer {
    let mut mode = mode(words)?;
    // SAFETY: a place that holds the new mode and takes the old one.
    unsafe { driver::cuThreadExchangeStreamCaptureMode(&raw mut mode) }?;
    Ok(mode.to_string())
}
