//! Finds keys, certificates and tokens among the files that are committed, or would be by the next `git add`.
//!
//! A file that git does not know and that `.gitignore` names is somebody's own and is not looked at.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns each secret as (path below the root, line, what it is), and nothing where the root is no repository of git's.
///
/// # Errors
/// If a file of the repository cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<(String, usize, String)>, String> {
    let mut found = Vec::new();
    for path in known_files(root) {
        // A file that was removed and not committed yet is no longer there, and what a link leads to is looked at there.
        let file = root.join(&path);
        if !file.symlink_metadata().is_ok_and(|about| about.is_file()) {
            continue;
        }
        let bytes = fs::read(&file).map_err(|error| format!("cannot read {path}: {error}"))?;
        found.extend(secrets_in(&path, &bytes).map(|(line, what)| (path.clone(), line, what)));
    }
    Ok(found)
}

/// Returns the files that are committed and those that are neither committed nor ignored.
fn known_files(root: &Path) -> Vec<String> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = Command::new("git").args(arguments).current_dir(root).output();
    let listed = listed.map(|output| output.stdout).unwrap_or_default();
    let names = listed.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// Returns the first secret of a file, as (line, what it is): one is enough for the file to go.
fn secrets_in(path: &str, bytes: &[u8]) -> Option<(usize, String)> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if NAMES.contains(&name) || EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str()) {
        return Some((1, format!("`{name}` is the name of a key or certificate: {REMEDY}")));
    }
    if is_der(bytes) {
        return Some((1, format!("the file is a key or certificate in DER: {REMEDY}")));
    }
    let text = String::from_utf8_lossy(bytes);
    let (at, what) = pem(&text).or_else(|| token(&text))?;
    Some((1 + text[..at].matches('\n').count(), format!("{what} is written here: {REMEDY}")))
}

/// Finds an armoured key or certificate: its first line, and digits of Base64 soon after, however lines are joined. The
/// first line alone is what programs look for.
fn pem(text: &str) -> Option<(usize, String)> {
    let armoured = text.match_indices(PEM_BEGINS).find_map(|(at, _)| {
        let after = &text[at + PEM_BEGINS.len()..];
        let (label, body) = after.split_once("-----").filter(|(label, _)| label.len() <= MOST_LABEL)?;
        let near = body.char_indices().nth(PEM_REACH).map_or(body, |(end, _)| &body[..end]);
        let near = near.split_once("-----").map_or(near, |(before, _)| before);
        has_body(near).then(|| (at, format!("a {}", label.to_lowercase())))
    });
    let encoded = || {
        text.match_indices(ENCODED_PEM_BEGINS).find_map(|(at, begins)| {
            let body = &text[at + begins.len()..];
            (run(body, is_base64) >= LEAST_BODY).then(|| (at, "an encoded key or certificate".to_owned()))
        })
    };
    armoured.or_else(encoded)
}

/// Finds what a service takes for somebody: a prefix of its own, and too many digits to be made up by a person.
fn token(text: &str) -> Option<(usize, String)> {
    TOKENS.iter().find_map(|&(prefix, least, of)| {
        text.match_indices(prefix).find_map(|(at, _)| {
            let secret = &text[at + prefix.len()..];
            let begins = !text[..at].ends_with(is_of_token);
            let secret = if prefix == OWN_TOKEN { after_id(secret) } else { secret };
            (begins && run(secret, is_of_token) >= least).then(|| (at, format!("a token of {of}")))
        })
    })
}

/// Returns the secret of one of Rollhouse's own tokens, which have their id before it; empty if there is none.
fn after_id(token: &str) -> &str {
    let parts = token.split_once('_').filter(|(id, _)| id.chars().all(|c| c.is_ascii_alphanumeric()));
    parts.map_or("", |(_, secret)| secret)
}

/// Returns whether a file is an outer sequence of DER and begins as certificates and private keys do.
fn is_der(bytes: &[u8]) -> bool {
    let inside = |bytes: &'_ [u8]| -> Option<usize> {
        match (bytes.first()?, bytes.get(1)?) {
            (0x30, length @ 0..=0x7f) => (usize::from(*length) + 2 == bytes.len()).then_some(2),
            (0x30, 0x81) => Some(3),
            (0x30, 0x82) => Some(4),
            _ => None,
        }
    };
    let Some(content) = inside(bytes).and_then(|at| bytes.get(at..)) else { return false };
    let certificate = inside(content)
        .and_then(|at| content.get(at..))
        .is_some_and(|begins| begins.starts_with(&[0xa0, 0x03, 0x02, 0x01, 0x02]));
    certificate || DER_KEYS.iter().any(|begins| content.starts_with(begins))
}

/// Returns whether digits of Base64 stand in the text that are no hexadecimal number and no word.
fn has_body(text: &str) -> bool {
    let mut runs = text.split(|c| !is_base64(c));
    runs.any(|run| run.len() >= LEAST_BODY && run.contains(|c: char| c.is_ascii_uppercase()))
}

/// Returns the number of such characters with which a text begins.
fn run(text: &str, of: fn(char) -> bool) -> usize {
    text.find(|c| !of(c)).unwrap_or(text.len())
}

fn is_base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=')
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

const REMEDY: &str =
    "remove it from the tree, name its folder in .gitignore, and replace it wherever it is trusted";

/// Endings of files that hold keys, certificates, or both.
const EXTENSIONS: [&str; 12] =
    ["key", "pem", "p8", "p12", "pfx", "der", "crt", "cer", "jks", "keystore", "ppk", "kdbx"];

/// Names of such files that have no ending.
const NAMES: [&str; 8] =
    ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".pypirc", ".git-credentials", "admin.token"];

// In two parts, so that this file has neither.
const PEM_BEGINS: &str = concat!("-----", "BEGIN ");
const ENCODED_PEM_BEGINS: &str = concat!("LS0tLS1", "CRUdJTi");

/// Beginnings of keys inside of their outer sequence: PKCS #8, PKCS #1 and SEC 1.
const DER_KEYS: [&[u8]; 4] = [&[2, 1, 0, 0x30], &[2, 1, 1, 0x30], &[2, 1, 0, 2, 0x82], &[2, 1, 1, 4]];

/// Longest label of an armoured text, in bytes.
const MOST_LABEL: usize = 64;
/// Characters after an armoured text's first line, within which its body begins: encrypted ones have headers before it.
const PEM_REACH: usize = 256;
/// Fewest characters of Base64 that are a body and no word.
const LEAST_BODY: usize = 40;

const OWN_TOKEN: &str = "rh_";
/// Prefixes of tokens, the fewest characters after them, and the services.
const TOKENS: [(&str, usize, &str); 10] = [
    (OWN_TOKEN, 32, "Rollhouse"),
    ("ghp_", 36, "GitHub"),
    ("gho_", 36, "GitHub"),
    ("ghs_", 36, "GitHub"),
    ("github_pat_", 36, "GitHub"),
    ("glpat-", 20, "GitLab"),
    ("AKIA", 16, "Amazon"),
    ("pypi-AgE", 32, "PyPI"),
    ("xoxb-", 20, "Slack"),
    ("eyJhbGciOi", 32, "a service that signs JSON"),
];

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "MIIBkzCCATmgAwIBAgIUSAnwrfs13iTERpK310js4YRMLl8wCgYIKoZIzj0EAwIw";

    fn what(path: &str, text: &str) -> Option<(usize, String)> {
        let (line, what) = secrets_in(path, text.as_bytes())?;
        Some((line, what.split(':').next().unwrap_or_default().to_owned()))
    }

    /// Symptom: keys and certificates of a cluster stood in the tree for days, among the folders of tests.
    /// Cause: a test left them there, `git add` took them along, and no check looked for them.
    /// Fix: the style step looks at every file that git knows.
    #[test]
    fn no_file_of_the_tree_is_a_key_a_certificate_or_a_token() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(check(&root), Ok(Vec::new()));
    }

    #[test]
    fn armoured_keys_and_certificates_are_found_however_their_lines_are_joined() {
        for label in ["PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "CERTIFICATE"] {
            for joined in ["\n", "\\n", "\n    ", "\\n\" \\\n \"", "\nProc-Type: 4,ENCRYPTED\n\n"] {
                let text = format!("a\nb = '{PEM_BEGINS}{label}-----{joined}{BODY}");
                let found = Some((2, format!("a {} is written here", label.to_lowercase())));
                assert_eq!(what("deploy/x.yaml", &text), found, "{text}");
            }
        }
        let encoded = format!("tls.key: {ENCODED_PEM_BEGINS}{BODY}");
        assert_eq!(
            what("x.yaml", &encoded),
            Some((1, "an encoded key or certificate is written here".into()))
        );
    }

    #[test]
    fn the_first_line_of_an_armoured_text_alone_is_no_secret() {
        let text = format!("const BEGIN: &str = \"{PEM_BEGINS}CERTIFICATE-----\";\nfn f(text: &str) {{}}\n");
        assert_eq!(what("crates/wire/src/x.rs", &text), None);
        assert_eq!(what("x.md", &format!("{PEM_BEGINS}CERTIFICATE-----\\n\",\n")), None);
    }

    #[test]
    fn keys_are_found_by_their_names_and_by_their_first_bytes() {
        for name in ["a/ca.key", "reset.key", "b.PEM", "c/id_ed25519"] {
            assert!(what(name, "").is_some(), "{name}");
        }
        assert_eq!(what("crates/wire/src/key.rs", ""), None);
        let key = [&[0x30, 0x81, 0x87, 2, 1, 0, 0x30][..], &[7; 130]].concat();
        let certificate = [0x30, 0x82, 1, 0x93, 0x30, 0x82, 1, 0x39, 0xa0, 3, 2, 1, 2, 2];
        assert!(is_der(&key) && is_der(&certificate));
        assert!(!is_der(b"0123456789") && !is_der(&[0x30]) && !is_der(&[]));
    }

    #[test]
    fn tokens_are_found_and_names_in_examples_are_not() {
        let secret = "0123456789abcdef0123456789abcdef";
        let own = format!("x\nurl = rollhouse://host?token={OWN_TOKEN}k3f9q2tz17_{secret}&ca=x");
        assert_eq!(what("x", &own), Some((2, "a token of Rollhouse is written here".into())));
        let amazon = format!("key = {}{}", "AKIA", "IOSFODNN7EXAMPLE");
        assert_eq!(what("x", &amazon), Some((1, "a token of Amazon is written here".into())));
        for harmless in [
            "rh_1_secret",
            "rh_0123456789_nobody",
            "rh_secret\") not in str_of_the_value_that_is_refused_here_as_ever",
            "xAKIAIOSFODNN7EXAMPLE",
        ] {
            assert_eq!(what("x", harmless), None);
        }
    }
}
