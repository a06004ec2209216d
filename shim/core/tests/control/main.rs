//! The control server, without a driver behind it.

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod remote;

#[cfg(test)]
mod askers;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod verbs;
