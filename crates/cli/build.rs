//! Tells the program what it is built from: `$ROLLHOUSE_COMMIT`, else the commit that git names, else nothing is known.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=ROLLHOUSE_COMMIT");
    let given = std::env::var("ROLLHOUSE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| {
        // Each commit appends a line there.
        if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
            println!("cargo::rerun-if-changed={log}");
        }
        git(&["rev-parse", "--short=12", "HEAD"])
    });
    println!("cargo::rustc-env=ROLLHOUSE_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    let known = [
        ("gate", "CARGO_FEATURE_GATE"),
        ("onnx", "CARGO_FEATURE_ONNX"),
        ("otlp", "CARGO_FEATURE_OTLP"),
        ("s3", "CARGO_FEATURE_S3"),
        ("viewer", "CARGO_FEATURE_VIEWER"),
    ];
    let chosen = known.into_iter().filter(|(_, variable)| std::env::var_os(variable).is_some());
    let chosen: Vec<&str> = chosen.map(|(feature, _)| feature).collect();
    let features = if chosen.is_empty() { "none".to_owned() } else { chosen.join(" ") };
    println!("cargo::rustc-env=ROLLHOUSE_FEATURES={features}");
}

/// What git prints; `None` without git or a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
