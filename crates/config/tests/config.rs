//! Files, variables and flags become one configuration, or are refused in words that say what to change.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rollhouse_config::{
    Config, ConfigError, CoordinatorConfig, LocalConfig, NodeConfig, Origin, Role, SettingValue, Sources,
    load, variable,
};
use rollhouse_core::Plugin;
use tempfile::NamedTempFile;

fn example(role: Role) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/config lies in the workspace");
    root.join("config").join(format!("{}.toml", role.word()))
}

/// A file with that text, gone when dropped.
struct TextFile(NamedTempFile);

impl TextFile {
    fn new(text: impl AsRef<[u8]>) -> Self {
        let mut file = NamedTempFile::with_suffix(".toml").expect("the temporary folder can be written");
        file.write_all(text.as_ref()).expect("the temporary folder can be written");
        Self(file)
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    fn sources(&self) -> Sources {
        Sources { file: Some(self.path()), ..Sources::default() }
    }
}

fn variables(given: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    given.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
}

#[test]
fn each_example_shows_every_key_at_its_default() {
    fn check<C: Config + PartialEq + std::fmt::Debug>(role: Role, data: impl Fn(&mut C) -> &mut PathBuf) {
        let loaded = load::<C>(&Sources { file: Some(example(role)), ..Sources::default() }).unwrap();
        let mut expected = C::default();
        let folder = data(&mut expected);
        *folder = example(role).with_file_name(folder.file_name().unwrap());
        assert_eq!(loaded.config, expected, "{}", role.word());
        let missing: Vec<_> = loaded.effective.iter().filter(|e| e.origin == Origin::Default).collect();
        assert!(missing.is_empty(), "{} does not show {missing:?}", role.word());
    }
    check::<CoordinatorConfig>(Role::Coordinator, |config| &mut config.data);
    check::<NodeConfig>(Role::Node, |config| &mut config.data);
    check::<LocalConfig>(Role::Local, |config| &mut config.data);
}

/// Symptom: a service that was started in another folder than the one of its file looked for certificates and data there.
#[test]
fn paths_in_a_file_are_meant_in_its_folder_and_those_of_variables_and_flags_where_the_command_runs() {
    let text = "[node]\ndata = \"spool\"\n[tls]\nca = \"../ca.pem\"\ncert = \"/etc/cert.pem\"\n";
    let file = TextFile::new(text);
    let folder = std::env::temp_dir();
    let NodeConfig { data, tls, .. } = load(&file.sources()).unwrap().config;
    assert_eq!(data, folder.join("spool"));
    let paths = [folder.join("../ca.pem"), "/etc/cert.pem".into()];
    assert_eq!([tls.ca, tls.cert], paths.map(Some));
    assert_eq!(tls.key, None, "empty is none");
    let over = Sources {
        variables: variables(&[("ROLLHOUSE_TLS__KEY", "key.pem")]),
        flags: vec![("--data".to_owned(), "node.data".to_owned(), "here".to_owned())],
        ..file.sources()
    };
    let NodeConfig { data, tls, .. } = load(&over).unwrap().config;
    assert_eq!((data, tls.key), ("here".into(), Some("key.pem".into())));
}

#[test]
fn keys_of_a_configuration_are_distinct() {
    for role in Role::ALL {
        let keys = role.effective(&Sources::default()).unwrap();
        let distinct: BTreeSet<_> = keys.iter().map(|effective| effective.key).collect();
        assert_eq!(distinct.len(), keys.len());
    }
}

#[test]
fn flags_go_over_variables_over_the_file_over_defaults() {
    let file = TextFile::new("[node]\ncapacity = 1\nthreads = 2\nqueue = 3\n");
    let sources = Sources {
        variables: variables(&[("ROLLHOUSE_NODE__THREADS", "4"), ("ROLLHOUSE_NODE__QUEUE", "5")]),
        flags: vec![("--set".to_owned(), "node.queue".to_owned(), "6".to_owned())],
        ..file.sources()
    };
    let loaded = load::<NodeConfig>(&sources).unwrap();
    let worker = &loaded.config.worker;
    assert_eq!((worker.capacity.0, worker.threads.0, worker.queue.0), (1, 4, 6));
    let origin = |key: &str| loaded.effective.iter().find(|e| e.key == key).unwrap().origin.clone();
    assert_eq!(origin("node.capacity"), Origin::File { path: file.path(), line: 2 });
    assert_eq!(origin("node.threads"), Origin::Variable("ROLLHOUSE_NODE__THREADS".to_owned()));
    assert_eq!(origin("node.queue"), Origin::Flag("--set".to_owned()));
    assert_eq!(origin("node.lease"), Origin::Default);
}

#[test]
fn every_key_of_every_role_can_be_set_by_a_variable_and_by_a_file_that_a_variable_names() {
    for role in Role::ALL {
        for setting in role.effective(&Sources::default()).unwrap() {
            let value = match &setting.value {
                SettingValue::Text(text) => text.clone(),
                SettingValue::Integer(number) => number.to_string(),
                SettingValue::Flag(flag) => flag.to_string(),
                // Labels are empty by default, and so is what stands for none.
                SettingValue::Thousandths(number) => (number / 1000).to_string(),
                SettingValue::Table(_) | SettingValue::Tables(_) | SettingValue::Named(_) => String::new(),
            };
            let name = variable(setting.key);
            let file = TextFile::new(format!("{value}\n"));
            let path = file.path().display().to_string();
            for (name, given) in [(name.clone(), value), (format!("{name}_FILE"), path)] {
                let sources = Sources {
                    variables: variables(&[(name.as_str(), given.as_str())]),
                    ..Sources::default()
                };
                let loaded = role.effective(&sources).unwrap();
                let set = loaded.into_iter().find(|set| set.key == setting.key).unwrap();
                assert_eq!((set.value, set.origin), (setting.value.clone(), Origin::Variable(name)));
            }
        }
    }
}

#[test]
fn a_file_that_a_variable_names_is_read_whole_and_stops_the_start_if_it_cannot_be() {
    let file = TextFile::new("zone=a,gpu=none\r\n");
    let path = file.path().display().to_string();
    let sources = |given: &[(&str, &str)]| Sources { variables: variables(given), ..Sources::default() };
    let set = [("ROLLHOUSE_NODE__LABELS_FILE", &*path)];
    let labels = load::<NodeConfig>(&sources(&set)).unwrap().config.worker.labels.0;
    assert_eq!(labels.get("gpu").map(String::as_str), Some("none"));
    // Of another role, and so not even read.
    assert!(load::<CoordinatorConfig>(&sources(&[("ROLLHOUSE_NODE__LABELS_FILE", "/nowhere")])).is_ok());
    let error = load::<NodeConfig>(&sources(&[("ROLLHOUSE_NODE__LABELS_FILE", "/nowhere")])).unwrap_err();
    assert_eq!(error.to_string(), "$ROLLHOUSE_NODE__LABELS_FILE names a file that cannot be used");
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("/nowhere"));
    let twice = [("ROLLHOUSE_NODE__LABELS_FILE", &*path), ("ROLLHOUSE_NODE__LABELS", "zone=b")];
    let error = load::<NodeConfig>(&sources(&twice)).unwrap_err();
    let told =
        "$ROLLHOUSE_NODE__LABELS and $ROLLHOUSE_NODE__LABELS_FILE set the same key: one of them has to go";
    assert_eq!(error.to_string(), told);
    let unknown = load::<NodeConfig>(&sources(&[("ROLLHOUSE_NODE__LABLES_FILE", &*path)])).unwrap_err();
    assert!(matches!(unknown, ConfigError::UnknownKey { .. }), "{unknown}");
}

#[test]
fn an_unknown_key_stops_with_its_line_and_the_nearest_keys() {
    let file = TextFile::new("[node]\n\n# a slip\nlissen = \"0.0.0.0:1\"\n");
    let error = load::<NodeConfig>(&file.sources()).unwrap_err();
    let ConfigError::UnknownKey { key, origin, nearest } = &error else { panic!("{error:?}") };
    assert_eq!((key.as_str(), nearest.first()), ("node.lissen", Some(&"node.listen")));
    assert_eq!(*origin, Origin::File { path: file.path(), line: 4 });
    assert!(error.to_string().contains("line 4: unknown key `node.lissen`; nearest"), "{error}");
}

#[test]
fn a_key_in_the_wrong_section_is_led_to_the_right_one() {
    let file = TextFile::new("[recorder]\nseal_after = \"5 s\"\n");
    let error = load::<NodeConfig>(&file.sources()).unwrap_err();
    assert!(error.to_string().contains("nearest is spool.seal_after"), "{error}");
}

#[test]
fn a_value_of_the_wrong_type_stops_with_key_value_wanted_type_and_line() {
    let cases = [
        ("[node]\nthreads = \"4\"\n", "line 2: node.threads = `4`, expected a whole number from 0 to"),
        ("[node]\nqueue = 0\n", "node.queue = `0`, expected a whole number from 1 to 65536"),
        ("[node]\nlease = 30\n", "node.lease = `30`, expected a time with a unit"),
        ("[node]\nlease = \"30\"\n", "the unit is missing; units are ms, s, min, h"),
        ("[node]\nlisten = \"localhost:1\"\n", "expected an IP address and a port"),
        ("[node]\nlabels = \"a=b\"\n", "expected at most 32 labels"),
        ("[node]\ncoordinator = \"host\"\n", "there is no port"),
        ("[spool]\nwhen_full = \"wait\"\n", "expected \"back_pressure\" or \"drop\""),
        ("[network]\njumbo = 1\n", "expected true or false"),
        ("[node]\ncapacity = 1979-05-27\n", "`a date`"),
        ("node = 3\n", "unknown key `node`"),
        ("[node]\nqueue = 99999999999999999999\n", "expected a whole number"),
    ];
    for (text, wanted) in cases {
        let file = TextFile::new(text);
        let error = load::<NodeConfig>(&file.sources()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{text:?} gives: {error}");
    }
}

#[test]
fn what_is_no_toml_stops_with_its_line() {
    let file = TextFile::new("[node]\nthreads = 4\nthreads = 5\n");
    let error = load::<NodeConfig>(&file.sources()).unwrap_err();
    assert!(matches!(error, ConfigError::Syntax { line: 3, .. }), "{error:?}");
    let error = load::<NodeConfig>(&Sources { file: Some("/no/such/file".into()), ..Sources::default() });
    assert!(matches!(error.unwrap_err(), ConfigError::Read { .. }));
    let file = TextFile::new([0xff, 0xfe]);
    assert!(matches!(load::<NodeConfig>(&file.sources()).unwrap_err(), ConfigError::NoText { .. }));
    let file = TextFile::new(vec![b'#'; 2 << 20]);
    assert!(matches!(load::<NodeConfig>(&file.sources()).unwrap_err(), ConfigError::NoText { .. }));
}

#[test]
fn variables_of_another_role_are_passed_over_and_those_of_none_stop() {
    let given = |name| Sources { variables: variables(&[(name, "1 GB")]), ..Sources::default() };
    assert_eq!(load::<NodeConfig>(&given("ROLLHOUSE_STORE__BUDGET")).unwrap().config, NodeConfig::default());
    assert_eq!(load::<NodeConfig>(&given("ROLLHOUSE_DATA")).unwrap().config, NodeConfig::default());
    let stored = load::<CoordinatorConfig>(&given("ROLLHOUSE_STORE__BUDGET")).unwrap().config;
    assert_eq!(stored.store.budget.0, 1_000_000_000);
    let error = load::<NodeConfig>(&given("ROLLHOUSE_STORE__BUDGETT")).unwrap_err().to_string();
    assert!(error.starts_with("$ROLLHOUSE_STORE__BUDGETT: unknown key `store.budgett`"), "{error}");
}

#[test]
fn every_key_can_be_set_by_a_variable_to_what_is_shown_of_it() {
    for role in Role::ALL {
        let shown = role.effective(&Sources { file: Some(example(role)), ..Sources::default() }).unwrap();
        let given: Vec<_> = shown.iter().map(|e| (variable(e.key), e.value.toml())).collect();
        let words = given.iter().map(|(name, value)| {
            let word = value.trim_matches('"').replace("{}", "").replace("[]", "");
            (OsString::from(name), OsString::from(word))
        });
        let sources = Sources { variables: words.collect(), ..Sources::default() };
        for (before, after) in shown.iter().zip(role.effective(&sources).unwrap()) {
            assert_eq!((before.key, &before.value), (after.key, &after.value));
            assert_eq!(after.origin, Origin::Variable(variable(after.key)));
        }
    }
}

#[test]
fn plugins_are_tables_of_a_file_or_paths_in_a_variable() {
    let plugin = |path: &str, trusted| Plugin { path: path.into(), trusted };
    let temporary = std::env::temp_dir().join("maze.so");
    let (maze, other) = (plugin(temporary.to_str().unwrap(), true), plugin("/lib/other.so", false));
    for text in [
        "[[plugin]]\npath = \"maze.so\"\ntrusted = true\n[[plugin]]\npath = \"/lib/other.so\"\n",
        "plugin = [{ path = \"./maze.so\", trusted = true }, { path = \"/lib/other.so\", trusted = false }]\n",
    ] {
        let file = TextFile::new(text);
        let loaded = load::<NodeConfig>(&file.sources()).unwrap();
        assert_eq!(loaded.config.hosting.plugins.0, [maze.clone(), other.clone()]);
        assert_eq!(
            load::<LocalConfig>(&file.sources()).unwrap().config.hosting.plugins,
            loaded.config.hosting.plugins
        );
        let shown = loaded.effective.iter().find(|e| e.key == "plugin").unwrap().value.toml();
        let back = TextFile::new(format!("plugin = {shown}\n"));
        assert_eq!(load::<NodeConfig>(&back.sources()).unwrap().config, loaded.config);
    }
    let given = variables(&[("ROLLHOUSE_PLUGIN", "trusted:a.so, b.so"), ("ROLLHOUSE_DATA", "elsewhere")]);
    let loaded = load::<NodeConfig>(&Sources { variables: given, ..Sources::default() }).unwrap();
    assert_eq!(loaded.config.hosting.plugins.0, [plugin("a.so", true), plugin("b.so", false)]);
    for (text, wanted) in [
        ("plugin = \"maze.so\"", "at most 64 tables with a path"),
        ("[plugin]\npath = \"maze.so\"", "at most 64 tables with a path"),
        ("[[plugin]]\ntrusted = true", "a table has no `path`"),
        ("[[plugin]]\npath = \"\"", "a path is empty"),
        ("[[plugin]]\npath = 7", "`path` is not a string"),
        ("[[plugin]]\npath = \"a.so\"\ntrusted = \"yes\"", "`trusted` is neither true nor false"),
        ("[[plugin]]\npath = \"a.so\"\nname = \"a\"", "a plug-in has no `name`"),
        (&"[[plugin]]\npath = \"a.so\"\n".repeat(65), "there are 65"),
    ] {
        let file = TextFile::new(text);
        let error = load::<NodeConfig>(&file.sources()).unwrap_err().to_string();
        assert!(error.contains("plugin") && error.contains(wanted), "{text}: {error}");
    }
}

#[test]
fn an_empty_value_is_none_where_there_can_be_none() {
    let file = TextFile::new("[metrics]\nlisten = \"\"\n[node]\nlabels = { zone = \"a\" }\n");
    let config = load::<NodeConfig>(&file.sources()).unwrap().config;
    assert_eq!(config.metrics, None);
    assert_eq!(config.worker.labels.0.get("zone").map(String::as_str), Some("a"));
}

proptest! {
    /// Any text is taken or refused, never more.
    #[test]
    fn no_text_is_too_strange(text in "\\PC{0,200}", lines in prop::collection::vec("[a-z.\\[\\]={}\"0-9 ]{0,30}", 0..8)) {
        for text in [text, lines.join("\n")] {
            let file = TextFile::new(text);
            for role in Role::ALL {
                if let Err(error) = role.effective(&file.sources()) {
                    prop_assert!(!error.to_string().is_empty());
                }
            }
        }
    }

    #[test]
    fn what_is_shown_reads_back_as_the_same(
        zone in "[a-z\"\\\\ äöü]{1,20}x",
        threads in 0..64_u64,
        data in "[a-zA-Z0-9/_. \"\\\\-]{0,30}x",
    ) {
        let quoted = rollhouse_config::SettingValue::Text(data.clone()).toml();
        let labels = rollhouse_config::SettingValue::Table([("zone".to_owned(), zone.trim().to_owned())].into()).toml();
        let text = format!("[node]\nthreads = {threads}\ndata = {quoted}\nlabels = {labels}\n");
        let file = TextFile::new(text);
        let config = load::<NodeConfig>(&file.sources()).unwrap().config;
        prop_assert_eq!(config.worker.threads.0, threads);
        prop_assert_eq!(config.worker.labels.0.get("zone").map(String::as_str), Some(zone.trim()));
        // The file lies in the temporary folder, in which what is relative is meant.
        let data = Path::new(data.trim());
        prop_assert_eq!(config.data, std::env::temp_dir().join(data.strip_prefix(".").unwrap_or(data)));
    }
}
