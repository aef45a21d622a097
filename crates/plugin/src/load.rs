//! Loads plug-ins and checks them.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::{fs, ptr, thread};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rollhouse_core::{Determinism, EnvSpec, panic_message};
use rollhouse_env::{EnvEntry, InstructionSet, check_spec, dynamics_hash};

use crate::abi::{MAX_ENVS, SYMBOL, Table, VERSION};
use crate::block::{Functions, OwnGenerators, PluginBlock, PluginEnv, Showing, States};
use crate::description::{Described, described};
use crate::error::{PluginError, PluginFault};
use crate::structure::grown;

/// Loads a plug-in into this process, whose fault each of its faults is from then on, and returns entries of its envs,
/// with the dynamics hashes of what they do now.
///
/// It checks the table and every description before anything else is called, and then plays each deterministic env twice
/// for [`DYNAMICS_STEPS`](rollhouse_env::DYNAMICS_STEPS) steps in four lanes. It blocks for as long as that takes. The
/// plug-in is never unloaded, because threads and allocations of its own may outlive its blocks.
///
/// # Errors
/// [`PluginError`]; the shared object stays loaded once its code has run.
pub fn load(path: &Path) -> Result<Vec<EnvEntry>, PluginError> {
    on_own_thread(path, entry)
}

/// Loads and checks a plug-in as [`load`] does, but does not play its envs: their dynamics hashes are 0.
///
/// # Errors
/// As [`load`].
pub fn load_untried(path: &Path) -> Result<Vec<EnvEntry>, PluginError> {
    on_own_thread(path, |functions, env, found| Ok(bare_entry(functions, env, found)))
}

type MakeEntry = fn(&Arc<Functions>, u32, Described) -> Result<EnvEntry, PluginFault>;

/// Loads a plug-in on a thread of its own, so that one that changes how its thread computes when it is loaded changes no
/// other.
fn on_own_thread(path: &Path, entry: MakeEntry) -> Result<Vec<EnvEntry>, PluginError> {
    let loaded = thread::scope(|scope| {
        let builder = thread::Builder::new().name("rollhouse-plugin".to_owned());
        let thread = builder.spawn_scoped(scope, || load_here(path, entry)).map_err(PluginFault::Thread)?;
        let panicked = |panic: Box<_>| PluginFault::Panicked { message: panic_message(&*panic) };
        thread.join().map_err(panicked)?
    });
    loaded.map_err(|fault| PluginError { path: path.to_owned(), fault })
}

fn load_here(path: &Path, entry: MakeEntry) -> Result<Vec<EnvEntry>, PluginFault> {
    let table = open(path)?;
    if flushes_to_zero() {
        return Err(PluginFault::FlushesToZero);
    }
    let functions = Arc::new(checked(&table)?);
    let found = (0..table.env_count).map(|env| {
        let found = described(&functions, env).map_err(|source| match source {
            Ok(source) => PluginFault::Description { env, source },
            Err(fault) => fault,
        })?;
        check_functions(&functions, &found)?;
        Ok(found)
    });
    // All are checked before the first is made.
    let found = found.collect::<Result<Vec<_>, PluginFault>>()?;
    (0..).zip(found).map(|(env, found)| entry(&functions, env, found)).collect()
}

/// Opens the shared object and copies its table, of which everything is still to be checked.
fn open(path: &Path) -> Result<Table, PluginFault> {
    // Absolute, because the loader searches its own folders for a bare name.
    let path = fs::canonicalize(path).map_err(PluginFault::File)?;
    if !fs::metadata(&path).map_err(PluginFault::File)?.is_file() {
        return Err(PluginFault::NotAFile);
    }
    let name: &OsStr = path.as_ref();
    // SAFETY: this runs the code with which the object initialises itself. Whoever declared the plug-in trusted vouches
    // for it.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }.map_err(PluginFault::Open)?;
    // SAFETY: the header declares the symbol with this type.
    let symbol = unsafe { library.get::<unsafe extern "C" fn() -> *const Table>(SYMBOL) };
    let Ok(symbol) = symbol.map(|symbol| *symbol) else { return Err(PluginFault::NoSymbol) };
    // Never unloaded: what it has started or allocated may outlive every value here.
    std::mem::forget(library);
    // SAFETY: the header declares the symbol with this type, and the library stays loaded.
    let table = unsafe { symbol() };
    if table.is_null() {
        return Err(PluginFault::NoTable);
    }
    // SAFETY: a table of any version begins with two numbers of 32 bits.
    let [version, size] = unsafe { ptr::read_unaligned(table.cast::<[u32; 2]>()) };
    if version != VERSION {
        return Err(PluginFault::Version { version });
    }
    // SAFETY: a table has as many bytes as it says, and stays as it is. Zeros are a table without functions.
    unsafe { grown("table", table, size) }
}

/// Takes the functions out of a table, if all that are needed are there.
pub(crate) fn checked(table: &Table) -> Result<Functions, PluginFault> {
    if table.env_count == 0 || table.env_count > MAX_ENVS {
        return Err(PluginFault::Envs { count: table.env_count });
    }
    let (always, trio, pair) =
        ("every plug-in has", "comes with `seed`, `position` and `restore`", "comes with its counterpart");
    let missing = |function, why| move || PluginFault::Missing { function, why };
    let own = table.seed.is_some() || table.position.is_some() || table.restore.is_some();
    let shown = table.state.is_some() || table.set_state.is_some();
    let own = match own {
        true => Some(OwnGenerators {
            seed: table.seed.ok_or_else(missing("seed", trio))?,
            position: table.position.ok_or_else(missing("position", trio))?,
            restore: table.restore.ok_or_else(missing("restore", trio))?,
        }),
        false => None,
    };
    let states = match shown {
        true => Some(States {
            state: table.state.ok_or_else(missing("state", pair))?,
            set_state: table.set_state.ok_or_else(missing("set_state", pair))?,
        }),
        false => None,
    };
    Ok(Functions {
        describe: table.describe.ok_or_else(missing("describe", always))?,
        make: table.make.ok_or_else(missing("make", always))?,
        close: table.close.ok_or_else(missing("close", always))?,
        reset: table.reset.ok_or_else(missing("reset", always))?,
        step: table.step.ok_or_else(missing("step", always))?,
        state_hash: table.state_hash.ok_or_else(missing("state_hash", always))?,
        own,
        revive: table.revive,
        states,
        showing: Showing { render: table.render, text: table.text },
        verdict: table.verdict,
        set_options: table.set_options,
        first_infos: table.first_infos,
        call: table.call,
        failed: table.failed,
    })
}

/// Refuses an env whose plug-in lacks what its description needs, or that says of itself what no env may.
fn check_functions(functions: &Functions, found: &Described) -> Result<(), PluginFault> {
    if found.drawn.is_some() && functions.showing.render.is_none() {
        return Err(PluginFault::Missing { function: "render", why: "an env with a picture's size needs" });
    }
    check_spec(&found.spec).map_err(PluginFault::Register)?;
    if found.spec.action_mask().is_some() && functions.first_infos.is_none() {
        return Err(PluginFault::Missing {
            function: "first_infos",
            why: "an env with an action mask needs",
        });
    }
    if !found.spec.methods.is_empty() && functions.call.is_none() {
        return Err(PluginFault::Missing { function: "call", why: "an env with methods needs" });
    }
    Ok(())
}

/// Makes the entry of an env, with the hash of its dynamics.
fn entry(functions: &Arc<Functions>, env: u32, found: Described) -> Result<EnvEntry, PluginFault> {
    let id = found.spec.id.clone();
    let unhashed = bare_entry(functions, env, found.clone());
    // Results depend on no instruction set, and a plug-in is compiled for its own.
    let hash = || {
        let hash = dynamics_hash(&unhashed, InstructionSet::best());
        hash.map_err(|source| PluginFault::Make { id: id.clone(), source })
    };
    let dynamics_hash = hash()?;
    if found.spec.determinism == Determinism::Deterministic && hash()? != dynamics_hash {
        return Err(PluginFault::NotDeterministic { id });
    }
    Ok(bare_entry(functions, env, Described { spec: EnvSpec { dynamics_hash, ..found.spec }, ..found }))
}

fn bare_entry(functions: &Arc<Functions>, env: u32, found: Described) -> EnvEntry {
    let Described { spec, verdicts, drawn } = found;
    let made = Arc::new(PluginEnv::new(Arc::clone(functions), env, &spec, verdicts));
    let entry = EnvEntry::new(spec, move |_, options| Ok(Box::new(PluginBlock::make(&made, options)?)));
    let entry = if functions.set_options.is_some() { entry.with_drawn_options() } else { entry };
    match drawn {
        Some((size, images_per_second)) => entry.drawn(size, images_per_second),
        None => entry,
    }
}

/// Returns whether this thread takes numbers that are too small for full precision for 0.
fn flushes_to_zero() -> bool {
    std::hint::black_box(f64::MIN_POSITIVE) / std::hint::black_box(2.0) == 0.0
}
