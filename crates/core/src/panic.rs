//! What a caught panic said.

use std::any::Any;

/// The message of a panic that `catch_unwind` or a thread's join returned; "no message" where the payload is
/// no text.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_and_other_payloads_admit_to_none() {
        assert_eq!(panic_message(&"plain"), "plain");
        assert_eq!(panic_message(&String::from("formatted 3")), "formatted 3");
        assert_eq!(panic_message(&7), "no message");
    }
}
