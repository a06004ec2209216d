//! A limit for calls into the driver that are about no process: one that hangs must not take the command along.

use std::sync::mpsc::channel;
use std::time::Duration;

use super::DriverError;

/// Carries `call` out on a thread of its own and waits no longer than `limit`. A call that has not come back stays where
/// it is: it cannot be taken back.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    name: &'static str,
    call: impl FnOnce() -> Result<T, DriverError> + Send + 'static,
) -> Result<T, DriverError> {
    let (send, receive) = channel();
    let body = move || {
        // Nobody listens any more when this took too long.
        let _ = send.send(call());
    };
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    if let Err(error) = started {
        return Err(DriverError::NoDriver { reason: format!("no thread for {name}: {error}") });
    }
    receive.recv_timeout(limit).unwrap_or(Err(DriverError::Hung { call: name, limit }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_the_answer_and_what_does_not_is_given_up() {
        assert_eq!(within(Duration::from_secs(60), "quick", || Ok(7)).unwrap(), 7);
        let (keep, wait) = channel::<()>();
        let hung = within(Duration::from_millis(20), "cuInit", move || {
            let _ = wait.recv();
            Ok(())
        });
        let text = hung.unwrap_err().to_string();
        assert!(text.contains("cuInit") && text.contains("not come back"), "{text}");
        drop(keep);
    }
}
