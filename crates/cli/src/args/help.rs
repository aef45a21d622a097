//! Help: commands in groups, examples of each, and the headings of options.

use std::fmt::Write;

use clap::builder::StyledStr;
use clap::{Command, CommandFactory};

use super::Cli;

/// Heading of the options that name a cluster.
pub(super) const CLUSTER: &str = "Cluster";
/// Heading of the options that name a folder of recordings.
pub(super) const RECORDINGS: &str = "Recordings";
/// Heading of the options that set what a config file sets, too.
pub(super) const SETTINGS: &str = "Settings";
/// Heading of the options of plug-ins.
pub(super) const PLUGINS: &str = "Plug-ins";
/// Heading of the options of Python environments.
pub(super) const PYTHON: &str = "Python environments";
/// Heading of the options of pictures.
pub(super) const PICTURES: &str = "Pictures";

/// Returns the command line with the help that derived definitions have no room for.
pub(crate) fn command() -> Command {
    let command = with_examples(Cli::command(), "rollhouse");
    let groups = groups(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{{options}}{{after-help}}",
    ))
}

/// Returns the list of commands, group by group. The heading of options, which follows them, is the last line.
fn groups(command: &Command) -> String {
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let shown = |name: &str| command.find_subcommand(name).filter(|command| !command.is_hide_set());
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let heading = |text: &mut String, words: &str| {
        // Writing to a text cannot fail.
        let _written = writeln!(text, "{header}{words}:{header:#}");
    };
    for (group, names) in GROUPS {
        heading(&mut text, group);
        for command in names.iter().filter_map(|name| shown(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let (name, gap) = (command.get_name(), width - command.get_name().len());
            let _written = writeln!(text, "  {literal}{name}{literal:#}{:gap$}  {about}", "");
        }
        text.push('\n');
    }
    heading(&mut text, "Options");
    text
}

/// Returns the command with the examples of it and of all below it in their help.
fn with_examples(command: Command, path: &str) -> Command {
    let of_it: Vec<&str> = EXAMPLES.iter().filter(|(of, _)| *of == path).map(|(_, line)| *line).collect();
    let command = command.mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        with_examples(below, &path)
    });
    if of_it.is_empty() {
        return command;
    }
    let header = *command.get_styles().get_header();
    let after = command.get_after_help().map(|after| format!("{}\n\n", after)).unwrap_or_default();
    // Not as text of the long help alone: options would then take two lines each there.
    command
        .after_help(StyledStr::from(format!("{after}{header}Examples:{header:#}\n  {}", of_it.join("\n  "))))
}

/// The groups in which commands are listed, each with its commands.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Play and look", &["rollout", "play", "envs", "policy", "replay", "watch", "gate"]),
    ("Cluster", &["up", "status", "top", "nodes", "sessions", "close", "drain", "undrain"]),
    (
        "Operate",
        &["coordinator", "node", "bridge", "doctor", "health", "config", "certs", "token", "audit", "store"],
    ),
    ("This command", &["completions", "man"]),
];

/// Commands with an example of each in use.
const EXAMPLES: &[(&str, &str)] = &[
    ("rollhouse", "rollhouse rollout --env CartPole-v1 --lanes 64 --episodes 1000"),
    ("rollhouse", "rollhouse replay ls --sort -return --limit 5"),
    ("rollhouse rollout", "rollhouse rollout --env CartPole-v1 --lanes 64 --episodes 1000"),
    ("rollhouse rollout", "rollhouse rollout --env Acrobot-v1 --lanes 4096 --steps 1e7 --record sample:0.01"),
    (
        "rollhouse rollout",
        "rollhouse rollout --env gymnasium:CartPole-v1 --steps 10_000 --python .venv/bin/python",
    ),
    (
        "rollhouse rollout",
        "rollhouse rollout --connect ./rollhouse-cluster/connection --env CartPole-v1 --episodes 1000",
    ),
    ("rollhouse play", "rollhouse play Snake-v0"),
    ("rollhouse play", "rollhouse play Skirmish-v0 --option opponent=beginner --option map=river"),
    ("rollhouse envs", "rollhouse envs"),
    ("rollhouse envs", "rollhouse envs CartPole-v1"),
    ("rollhouse gate", "rollhouse gate openra"),
    ("rollhouse bridge", "rollhouse bridge openra --engine 127.0.0.1:9999 --join ./join"),
    ("rollhouse bridge openra", "rollhouse bridge openra --engine 127.0.0.1:9999 --join ./join"),
    ("rollhouse gate", "rollhouse gate openenv --env CartPole-v1"),
    ("rollhouse gate openenv", "rollhouse gate openenv --env CartPole-v1 --data ./episodes"),
    (
        "rollhouse gate openenv",
        "rollhouse gate openenv --env Skirmish-v0 --listen 0.0.0.0:8000 --token-file ./token",
    ),
    ("rollhouse gate openra", "rollhouse gate openra --option opponent=hard --data ./games"),
    ("rollhouse gate openra", "rollhouse gate openra --listen 0.0.0.0:9999 --token-file ./token"),
    ("rollhouse replay", "rollhouse replay ls --sort -return --limit 5"),
    ("rollhouse replay", "rollhouse replay play k3f9q2tz-17-203"),
    ("rollhouse replay ls", "rollhouse replay ls --sort -return --limit 5"),
    ("rollhouse replay ls", "rollhouse replay ls --env CartPole-v1 --min-return 450 --json"),
    ("rollhouse replay show", "rollhouse replay show k3f9q2tz-17-203"),
    ("rollhouse replay play", "rollhouse replay play k3f9q2tz-17-203"),
    ("rollhouse replay play", "rollhouse replay play k3f9q2tz-17-203 --compare k3f9q2tz-17-204"),
    ("rollhouse replay fork", "rollhouse replay fork k3f9q2tz-17-203 --at 40 --policy random"),
    ("rollhouse replay verify", "rollhouse replay verify --all"),
    ("rollhouse replay diff", "rollhouse replay diff k3f9q2tz-17-203 k3f9q2tz-17-204"),
    ("rollhouse replay export", "rollhouse replay export k3f9q2tz-17-203 -o best.html"),
    (
        "rollhouse replay export",
        "rollhouse replay export --env CartPole-v1 --best 10 --format npz --into arrays",
    ),
    ("rollhouse replay import", "rollhouse replay import best.rhr"),
    ("rollhouse replay import", "rollhouse replay import game.orarep --json"),
    ("rollhouse replay pin", "rollhouse replay pin k3f9q2tz-17-203"),
    ("rollhouse replay unpin", "rollhouse replay unpin k3f9q2tz-17-203"),
    ("rollhouse replay tag", "rollhouse replay tag k3f9q2tz-17-203 odd"),
    ("rollhouse replay untag", "rollhouse replay untag k3f9q2tz-17-203 odd"),
    ("rollhouse replay note", "rollhouse replay note k3f9q2tz-17-203 'turns around at the last gate'"),
    ("rollhouse replay prune", "rollhouse replay prune --older-than 30d --keep-best 100"),
    ("rollhouse replay repair", "rollhouse replay repair --data ./rollhouse-data"),
    ("rollhouse replay stats", "rollhouse replay stats --plot"),
    ("rollhouse replay quarantine", "rollhouse replay quarantine ls --data ./rollhouse-coordinator/store"),
    ("rollhouse replay quarantine ls", "rollhouse replay quarantine ls --data ./rollhouse-coordinator/store"),
    (
        "rollhouse replay quarantine read",
        "rollhouse replay quarantine read k3f9q2tz-17-203 --data ./rollhouse-coordinator/store",
    ),
    ("rollhouse policy", "rollhouse policy put pong pong.safetensors"),
    ("rollhouse policy put", "rollhouse policy put pong pong.safetensors"),
    ("rollhouse policy ls", "rollhouse policy ls"),
    ("rollhouse policy show", "rollhouse policy show pong@3"),
    ("rollhouse policy rm", "rollhouse policy rm pong@3"),
    ("rollhouse policy compare", "rollhouse policy compare pong@3 pong@4 --env Pong-v0 --episodes 200"),
    ("rollhouse policy export", "rollhouse policy export pong@3 -o pong.safetensors"),
    (
        "rollhouse policy export",
        "rollhouse policy export cart.safetensors --dialect godot --env CartPole-v1 -o cart.onnx",
    ),
    ("rollhouse store", "rollhouse store export --all --to s3://recordings/2026"),
    ("rollhouse store export", "rollhouse store export --all --to s3://recordings/2026"),
    ("rollhouse store import", "rollhouse store import --from s3://recordings/2026 --data ./restored"),
    ("rollhouse store verify", "rollhouse store verify s3://recordings/2026"),
    ("rollhouse up", "rollhouse up"),
    ("rollhouse up", "rollhouse up --set node.threads=4 --set budget.capacity=4096"),
    (
        "rollhouse coordinator",
        "rollhouse coordinator --config config/coordinator.toml --data /var/lib/rollhouse",
    ),
    ("rollhouse node", "rollhouse node --coordinator 10.0.0.1:7600 --config config/node.toml"),
    ("rollhouse doctor", "rollhouse doctor --for node --config config/node.toml"),
    ("rollhouse health", "rollhouse health"),
    ("rollhouse status", "rollhouse status --connect ./rollhouse-cluster/connection"),
    ("rollhouse top", "rollhouse top --connect ./rollhouse-cluster/connection"),
    ("rollhouse nodes", "rollhouse nodes --json"),
    ("rollhouse sessions", "rollhouse sessions"),
    ("rollhouse watch", "rollhouse watch k3f9q2tz"),
    ("rollhouse watch", "rollhouse watch --replay k3f9q2tz-17-203 --speed 2"),
    ("rollhouse close", "rollhouse close k3f9q2tz"),
    ("rollhouse drain", "rollhouse drain node-3 --wait"),
    ("rollhouse undrain", "rollhouse undrain node-3"),
    ("rollhouse certs", "rollhouse certs init"),
    ("rollhouse certs init", "rollhouse certs init --dir ./rollhouse-ca"),
    ("rollhouse certs issue", "rollhouse certs issue --role node --name node-3"),
    ("rollhouse certs issuer", "rollhouse certs issuer --dir ./rollhouse-ca"),
    ("rollhouse certs revoke", "rollhouse certs revoke --role node --name node-3"),
    ("rollhouse certs revoked", "rollhouse certs revoked"),
    ("rollhouse certs show", "rollhouse certs show ./rollhouse-node/tls"),
    ("rollhouse certs fingerprint", "rollhouse certs fingerprint ./rollhouse-ca"),
    ("rollhouse token", "rollhouse token create --role trainer --name ada --max-lanes 4096"),
    ("rollhouse token create", "rollhouse token create --role trainer --name ada --max-lanes 4096"),
    (
        "rollhouse token create",
        "rollhouse token create --role join --name-prefix gpu- --uses 8 --expires '30 min'",
    ),
    ("rollhouse token rotate", "rollhouse token rotate 0123456789 --grace '30 min'"),
    ("rollhouse token revoke", "rollhouse token revoke 0123456789"),
    ("rollhouse token ls", "rollhouse token ls"),
    ("rollhouse audit", "rollhouse audit --limit 50"),
    ("rollhouse config", "rollhouse config show --for node"),
    ("rollhouse config check", "rollhouse config check config/node.toml --for node"),
    ("rollhouse config show", "rollhouse config show --for node --set node.threads=4"),
    (
        "rollhouse completions",
        "rollhouse completions bash > ~/.local/share/bash-completion/completions/rollhouse",
    ),
    ("rollhouse man", "rollhouse man ~/.local/share/man/man1"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    /// Calls `look` with every command that is shown, and its path.
    fn each(command: &Command, path: &str, look: &mut impl FnMut(&str, &Command)) {
        look(path, command);
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            each(below, &format!("{path} {}", below.get_name()), look);
        }
    }

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_is_in_one_group() {
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let different: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(listed.len(), different.len(), "one is listed twice");
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set()).map(Command::get_name);
        assert_eq!(shown.collect::<BTreeSet<_>>(), different);
    }

    #[test]
    fn every_command_has_examples_and_each_of_them_is_one_that_the_command_takes() {
        let mut of = BTreeSet::new();
        for (path, line) in EXAMPLES {
            assert!(line.starts_with(path), "{line} is no example of {path}");
            let line = line.split(" > ").next().unwrap();
            let words: Vec<String> = shell_words(line);
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{line}: {error}");
            }
            of.insert(*path);
        }
        each(&command(), "rollhouse", &mut |path, command| {
            assert!(of.contains(path), "{path} has no example");
            let help = command.clone().render_help().to_string();
            assert!(help.contains("Examples:\n  rollhouse "), "{path}:\n{help}");
        });
    }

    /// Symptom: a hint may name a command or an option that there is not, or not any more. Cause: only examples of the help were
    /// read by a test. Fix: all that stands between backticks in a message is.
    #[test]
    fn every_command_that_a_message_names_is_one_that_there_is() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        sources(&crates, &mut files);
        let named: BTreeSet<String> =
            files.iter().flat_map(|file| commands_in(&std::fs::read_to_string(file).unwrap())).collect();
        assert!(named.len() > 20, "{named:?}");
        for line in &named {
            let words: Vec<String> = shell_words(line).into_iter().map(|word| sample(&word)).collect();
            let Err(error) = Cli::try_parse_from(&words) else { continue };
            // It may be named without what it is given.
            let is_named_alone = matches!(
                error.kind(),
                ErrorKind::MissingRequiredArgument
                    | ErrorKind::MissingSubcommand
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            );
            assert!(is_named_alone, "{line}: {error}");
        }
    }

    /// Finds the sources of the crates whose messages users see.
    fn sources(folder: &std::path::Path, files: &mut Vec<std::path::PathBuf>) {
        const NOT_THESE: [&str; 6] = ["tests", "benches", "examples", "target", "xtask", "simulation"];
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if entry.is_dir() && !NOT_THESE.contains(&&*name) {
                sources(&entry, files);
            } else if entry.extension().is_some_and(|ending| ending == "rs" || ending == "py") {
                files.push(entry);
            }
        }
    }

    /// Returns the commands between backticks in what is neither a comment nor a test.
    fn commands_in(text: &str) -> Vec<String> {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = code.lines().map(str::trim_start).filter(|line| !line.starts_with(['/', '#']));
        let code: String =
            lines.map(|line| line.strip_suffix('\\').map_or(format!("{line}\n"), str::to_owned)).collect();
        // Docstrings in Python have two.
        let code = code.replace("``", "`");
        let quoted = code.split('`').skip(1).step_by(2);
        quoted
            .filter(|quoted| quoted.starts_with("rollhouse ") && !quoted.contains("{line"))
            .map(str::to_owned)
            .collect()
    }

    /// Returns a word that stands for what a word of a message stands for.
    fn sample(word: &str) -> String {
        let word = match word.strip_suffix("{place}").unwrap_or(word) {
            "NAME" | "{id}" => "k3f9q2tz-17-203",
            "ROLE" => "node",
            "{pool}" => "k3f9q2tz",
            word => word,
        };
        let named = word.replace(['{', '}'], "");
        if named.is_empty() { "x".to_owned() } else { named }
    }

    /// Splits a line as a shell does, for lines whose quotes are single.
    fn shell_words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        parts
            .flat_map(|(place, part)| match place % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect(),
                _ => vec![part.to_owned()],
            })
            .collect()
    }

    #[test]
    fn an_option_stands_under_the_heading_of_its_group_and_all_others_under_none() {
        let groups: [(&str, &[&str]); 6] = [
            (CLUSTER, &["connect", "token", "ca"]),
            (RECORDINGS, &["data"]),
            (SETTINGS, &["config", "set", "log", "log-format"]),
            (PLUGINS, &["plugin", "trust-plugins"]),
            (
                PYTHON,
                &[
                    "python",
                    "allow",
                    "workers",
                    "worker-memory",
                    "connect-retries",
                    "launch-within",
                    "connect-within",
                    "step-within",
                    "reset-within",
                    "env-kwargs",
                    "deterministic",
                ],
            ),
            (PICTURES, &["every", "size", "fps", "at"]),
        ];
        each(&Cli::command(), "rollhouse", &mut |path, command| {
            // The folder of its lines is a coordinator's.
            let of_recordings = path != "rollhouse audit"
                && command.get_arguments().any(|arg| arg.get_long() == Some("connect"));
            for arg in command.get_arguments() {
                let Some(long) = arg.get_long() else { continue };
                let group =
                    groups.iter().find(|(_, options)| options.contains(&long)).map(|(group, _)| *group);
                let wanted = match group {
                    // A folder that is not one of recordings, or the only place that a command knows.
                    Some(RECORDINGS) if !of_recordings => None,
                    // Elsewhere these are about one screen.
                    Some(PICTURES) if !path.ends_with("export") => None,
                    group => group,
                };
                assert_eq!(arg.get_help_heading(), wanted, "{path} --{long}");
            }
        });
    }

    #[test]
    fn every_command_that_prints_json_is_on_the_page_about_it() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        let page = std::fs::read_to_string(page).unwrap();
        let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
        each(&Cli::command(), "rollhouse", &mut |path, command| {
            let name = format!("`{path}`");
            let prints = command.get_arguments().any(|arg| arg.get_long() == Some("json"));
            let is_there = headings.iter().any(|heading| heading.split(", ").any(|one| one == name));
            assert_eq!(prints, is_there, "{path}");
        });
    }

    #[test]
    fn the_help_lists_commands_in_groups_each_on_a_line() {
        let help = command().render_help().to_string();
        for (group, _) in GROUPS {
            assert!(help.contains(&format!("{group}:\n  ")), "{help}");
        }
        // Commands of one line, each in one column.
        for line in help.lines().take_while(|line| *line != "Options:") {
            assert!(line.chars().count() <= 110, "{line}");
        }
    }
}
