//! What a step costs through a plug-in, beside the built-in kernel: `cargo bench -p rollhouse-plugin`.
#![allow(missing_docs, reason = "a program")]
fn main() {}
