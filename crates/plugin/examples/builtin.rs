//! Built-in envs as a plug-in, against which the bench and a test measure what the way through one costs and
//! changes.

use rollhouse_core::EnvSpec;
use rollhouse_env::{EnvEntry, ImageSize, Registry};

/// Returns the entry of the built-in env under another id.
fn renamed(id: &str, to: &str) -> Option<EnvEntry> {
    let entry = Registry::builtin().get(id).ok()?;
    let spec = EnvSpec { id: to.to_owned(), ..entry.spec().clone() };
    let size = entry.render_size().unwrap_or(ImageSize::new(64, 64).ok()?);
    let fps = entry.render_fps().unwrap_or(30);
    Some(EnvEntry::new(spec, move |set, options| entry.make_block_on(set, options)).drawn(size, fps))
}

rollhouse_plugin::export_envs!({
    let names = [
        ("CartPole-v1", "plugin/CartPole-v1"),
        ("Pendulum-v1", "plugin/Pendulum-v1"),
        ("test/Orders-v0", "plugin/Orders-v0"),
    ];
    names.into_iter().filter_map(|(id, to)| renamed(id, to)).collect()
});
