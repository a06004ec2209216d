//! `gpus`, and the file it writes.

use std::io;
use std::path::{Path, PathBuf};

use cuda_sys::Uuid;
use serde_json::json;

use super::{Context, Exit, Outcome};
use crate::driver::Gpu;
use crate::report::{print_line, print_object};

const VERB: &str = "gpus";

pub(super) fn gpus(context: &Context, file: Option<&Path>, json: bool) -> Outcome {
    let gpus = match &context.machine.driver {
        Ok(driver) => driver.gpus(),
        Err(error) => Err(error.clone()),
    };
    let gpus = match gpus {
        Ok(gpus) => gpus,
        Err(error) => return Outcome::failed(VERB, &error),
    };
    let lines: Vec<String> = gpus.iter().map(line).collect();
    if let Some(path) = file {
        let written = std::fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        if let Err(error) = written {
            return Outcome::new(VERB, Exit::Failed, format!("cannot write {}: {error}", path.display()));
        }
    }
    for (ordinal, (gpu, line)) in gpus.iter().zip(&lines).enumerate() {
        if json {
            print_object(&json!({
                "event": "gpu",
                "ordinal": ordinal,
                "uuid": gpu.uuid.to_string(),
                "name": gpu.name,
                "memory": gpu.total,
            }));
        } else {
            print_line(line);
        }
    }
    Outcome::new(VERB, Exit::Done, "")
}

/// UUID, name, memory. The UUID comes first, since names have spaces.
fn line(gpu: &Gpu) -> String {
    format!("{}  {}  {} MiB", gpu.uuid, gpu.name, gpu.total >> 20)
}

/// Why a list of GPUs cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A line does not begin with the UUID of a GPU.
    #[error(
        "line {line} of {path} does not begin with the UUID of a GPU, as `nvsnap-gpu-suspend gpus` prints it"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

/// Reads a list that `gpus` printed.
pub(super) fn read_list(path: &Path) -> Result<Vec<Uuid>, ListError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ListError::Read { path: path.to_path_buf(), source })?;
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            let first = line.split_ascii_whitespace().next().unwrap_or_default();
            parse_uuid(first).ok_or_else(|| ListError::Line { path: path.to_path_buf(), line: number + 1 })
        })
        .collect()
}

/// Reads a UUID as the driver prints it.
pub(super) fn parse_uuid(text: &str) -> Option<Uuid> {
    let digits: Vec<u8> = text.strip_prefix("GPU-")?.bytes().filter(|byte| *byte != b'-').collect();
    let mut bytes = [0; 16];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Uuid { bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_again() {
        let gpu = |number: u8| Gpu {
            uuid: Uuid { bytes: [number; 16] },
            name: "NVIDIA H200".into(),
            total: 143_771 << 20,
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{}\n{}\n\n", line(&gpu(1)), line(&gpu(0xab)))).unwrap();
        assert_eq!(line(&gpu(1)), "GPU-01010101-0101-0101-0101-010101010101  NVIDIA H200  143771 MiB");
        assert_eq!(read_list(file.path()).unwrap(), [gpu(1).uuid, gpu(0xab).uuid]);
    }

    #[test]
    fn a_line_that_is_no_gpu_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "GPU-01010101-0101-0101-0101-010101010101  x\nGPU-01  y\n").unwrap();
        let error = read_list(file.path()).unwrap_err();
        assert!(error.to_string().starts_with("line 2 of "), "{error}");
    }
}
