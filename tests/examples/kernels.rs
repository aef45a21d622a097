//! Built-in envs as a plug-in, whose lanes in workers are compared with those of this process.

#[path = "../tests/lanes/foretold.rs"]
mod foretold;

use rollhouse_env::{EnvEntry, Registry};

rollhouse_plugin::export_envs!({
    let registry = Registry::builtin();
    registry.register(foretold::foretold()).expect("no built-in env is called so");
    let ids = ["CartPole-v1", "test/Called-v0", "test/Faulty-v0", "test/Masked-v0", "test/Foretold-v0"];
    let entries = ids.into_iter().filter_map(|id| registry.get(id).ok());
    let copies = entries.map(|entry| {
        let (spec, size, fps) = (entry.spec().clone(), entry.render_size(), entry.render_fps());
        let copy = EnvEntry::new(spec, move |set, options| entry.make_block_on(set, options));
        match (size, fps) {
            (Some(size), Some(fps)) => copy.with_drawn_options().drawn(size, fps),
            _ => copy.with_drawn_options(),
        }
    });
    copies.collect()
});
