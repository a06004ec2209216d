//! The devices of the machine and which of them a process sees.

pub(crate) mod attributes;
pub(crate) mod calls;
mod uuid;

pub(crate) use uuid::uuid;

/// The devices that `CUDA_VISIBLE_DEVICES` leaves visible, in its order: ordinals or beginnings of UUIDs. As with the real
/// driver, the list ends at the first entry that names no device or one that was named before.
pub(crate) fn visible(devices: usize, wanted: Option<&str>) -> Vec<usize> {
    let Some(wanted) = wanted else { return (0..devices).collect() };
    let mut visible = Vec::new();
    for entry in wanted.split(',').map(str::trim) {
        let named = match entry.parse::<usize>() {
            Ok(ordinal) => Some(ordinal).filter(|&ordinal| ordinal < devices),
            Err(_) if entry.starts_with("GPU-") => {
                let mut matching = (0..devices).filter(|&device| uuid(device).to_string().starts_with(entry));
                matching.next().filter(|_| matching.next().is_none())
            }
            Err(_) => None,
        };
        match named {
            Some(device) if !visible.contains(&device) => visible.push(device),
            _ => break,
        }
    }
    visible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_are_named_by_ordinal_or_uuid() {
        assert_eq!(visible(3, None), [0, 1, 2]);
        assert_eq!(visible(3, Some("2,0")), [2, 0]);
        assert_eq!(visible(3, Some("1,7,0")), [1]);
        assert_eq!(visible(3, Some("1,1")), [1]);
        assert_eq!(visible(3, Some("")), [0; 0]);
        assert_eq!(visible(3, Some(&uuid(2).to_string())), [2]);
        assert_eq!(visible(3, Some("GPU-fa")), [0; 0], "three devices begin so");
    }
}
