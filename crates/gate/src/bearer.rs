//! The token that calls carry.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::digest::{SHA256, digest};

/// What calls have to carry to be answered: a token as `authorization: Bearer TOKEN`, or nothing.
pub(crate) struct Bearer {
    /// SHA-256 of the token. Hashes are compared, so that how long that takes says nothing of the token.
    hash: Option<[u8; 32]>,
}

impl Bearer {
    pub(crate) fn of(token: Option<&str>) -> Self {
        Self { hash: token.map(hash) }
    }

    /// Returns whether calls have to carry a token.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.hash.is_some()
    }

    /// Returns whether a call with these headers is answered.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(wanted) = self.hash else { return true };
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|value| value.split_once(' '));
        token.is_some_and(|(kind, token)| kind.eq_ignore_ascii_case("bearer") && hash(token.trim()) == wanted)
    }
}

fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_call_is_answered_with_the_token_alone_and_without_one_if_none_is_wanted() {
        let headers =
            |value: &str| HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
        let bearer = Bearer::of(Some("secret"));
        assert!(bearer.admits(&headers("Bearer secret")) && bearer.admits(&headers("bearer  secret")));
        for wrong in ["Bearer secre", "Bearer secrets", "Basic secret", "secret", "Bearer ", ""] {
            assert!(!bearer.admits(&headers(wrong)), "{wrong}");
        }
        assert!(!bearer.admits(&HeaderMap::new()));
        assert!(Bearer::of(None).admits(&HeaderMap::new()));
    }
}
