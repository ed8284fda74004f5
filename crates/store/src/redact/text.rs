//! Credentials in texts: by their shape, and by the name before them.

use std::borrow::Cow;

use super::{WITHHELD, is_secret_key};

/// How tokens of well-known services begin, and how many characters they have at least.
const SHAPES: &[(&str, usize)] = &[
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 15),
    ("gldt-", 15),
    ("glcbt-", 15),
    ("sk-", 20),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("xoxa-", 16),
    ("xoxs-", 16),
    ("xapp-", 16),
    ("lin_api_", 16),
    ("lin_oauth_", 16),
    ("AKIA", 20),
    ("ASIA", 20),
    ("AIza", 35),
    ("ya29.", 20),
    ("npm_", 30),
    ("pypi-", 30),
    ("hf_", 20),
    ("dop_v1_", 30),
    ("hvs.", 20),
    ("SG.", 30),
    ("GOCSPX-", 20),
    ("glsa_", 20),
    ("xoxe-", 16),
];

/// Words after which a credential stands, as in an `Authorization` header.
const SCHEMES: &[&str] = &["bearer", "basic"];
/// A word after one of them that is shorter is an ordinary word: "bearer of news".
const SCHEME_CREDENTIAL: usize = 16;

const KEY_BEGINS: &str = "-----BEGIN ";
const KEY_ENDS: &str = "-----END ";

/// The shortest JSON Web Token that means something.
const WEB_TOKEN: usize = 30;
/// How addresses begin that are secrets as a whole.
const SECRET_ADDRESSES: &[&str] = &[
    "hooks.slack.com/services/",
    "hooks.slack.com/workflows/",
    "discord.com/api/webhooks/",
    "discordapp.com/api/webhooks/",
];
/// The longest name before a value.
const NAME_MAX: usize = 128;

/// Leaves out of a text what has the shape of a credential.
pub fn withhold_text(text: &str) -> Cow<'_, str> {
    let mut clean = Cow::Borrowed(text);
    for step in [
        private_keys,
        ends_of_private_keys,
        passwords_in_addresses,
        secret_addresses,
        assignments,
        tokens,
    ] {
        if let Some(cleaner) = step(&clean) {
            clean = Cow::Owned(cleaner);
        }
    }
    clean
}

/// From `-----BEGIN … PRIVATE KEY-----` to its end, or to the end of the text if that is cut.
fn private_keys(text: &str) -> Option<String> {
    let mut clean = String::new();
    let mut rest = text;
    while let Some(start) = find_private_key(rest) {
        clean.push_str(rest.get(..start)?);
        clean.push_str(WITHHELD);
        let key = rest.get(start + KEY_BEGINS.len()..)?;
        let end = key.find(KEY_ENDS).and_then(|end| {
            let after = key.get(end + KEY_ENDS.len()..)?;
            Some(end + KEY_ENDS.len() + after.find("-----")? + 5)
        });
        rest = end.and_then(|end| key.get(end..)).unwrap_or_default();
    }
    (!clean.is_empty()).then(|| clean + rest)
}

/// Of a key whose beginning is cut off, the lines before `-----END … PRIVATE KEY-----`.
fn ends_of_private_keys(text: &str) -> Option<String> {
    let mut clean = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(KEY_ENDS) {
        let Some((title, others)) = after
            .split_once("-----")
            .filter(|(title, _)| title.ends_with("PRIVATE KEY"))
        else {
            clean.push_str(before);
            clean.push_str(KEY_ENDS);
            rest = after;
            continue;
        };
        let _ = title;
        let in_key = |line: &str| {
            let line = line.trim();
            !line.is_empty()
                && line
                    .chars()
                    .all(|letter| letter.is_ascii_alphanumeric() || "+/=".contains(letter))
        };
        let lines: Vec<&str> = before.split_inclusive('\n').collect();
        let of_key = lines.iter().rev().take_while(|line| in_key(line)).count();
        let stays = lines.len().saturating_sub(of_key);
        clean.extend(lines.into_iter().take(stays));
        clean.push_str(WITHHELD);
        rest = others;
    }
    clean.push_str(rest);
    (clean != text).then_some(clean)
}

/// Addresses that let in whoever knows them.
fn secret_addresses(text: &str) -> Option<String> {
    let mut clean = String::new();
    let mut rest = text;
    while let Some(start) = SECRET_ADDRESSES
        .iter()
        .filter_map(|begin| Some(rest.find(begin)? + begin.len()))
        .min()
    {
        let (before, after) = rest.split_at(start);
        clean.push_str(before);
        clean.push_str(WITHHELD);
        let end = after.find(|letter: char| letter.is_whitespace() || "\"'<>`,;)".contains(letter));
        rest = after.get(end.unwrap_or(after.len())..).unwrap_or_default();
    }
    (!clean.is_empty()).then(|| clean + rest)
}

/// `NAME=value` and `name: value`, wherever the name is one of a secret.
fn assignments(text: &str) -> Option<String> {
    let mut clean = String::new();
    let mut done = 0;
    for (at, sign) in text.match_indices(['=', ':']) {
        if at < done {
            continue;
        }
        let before = text.get(done..at).unwrap_or_default();
        let after = text.get(at + 1..).unwrap_or_default();
        // Paths of modules, and the schemes of addresses.
        if sign == ":" && (after.starts_with(':') || after.starts_with("//")) {
            continue;
        }
        let name = name_at_end(before);
        if name.is_empty() || !is_secret_key(name) {
            continue;
        }
        let Some((start, end)) = value_in(name, after) else {
            continue;
        };
        clean.push_str(text.get(done..at + 1 + start).unwrap_or_default());
        clean.push_str(WITHHELD);
        done = at + 1 + end;
    }
    clean.push_str(text.get(done..).unwrap_or_default());
    (clean != text).then_some(clean)
}

/// The name that a text ends with, which may be quoted.
fn name_at_end(text: &str) -> &str {
    let text = text
        .trim_end_matches([' ', '\t'])
        .trim_end_matches(['"', '\'', '`', '\\']);
    let letters = text.char_indices().rev().take(NAME_MAX);
    let begin = letters
        .take_while(|(_, letter)| letter.is_alphanumeric() || "_-.".contains(*letter))
        .last();
    begin.and_then(|(begin, _)| text.get(begin..)).unwrap_or_default()
}

/// From where to where in this text the value of a secret reaches; nothing if there is none.
fn value_in(name: &str, text: &str) -> Option<(usize, usize)> {
    let start = text.len() - text.trim_start_matches([' ', '\t', '=', '>']).len();
    let value = text.get(start..)?;
    let line = value.get(..value.find(['\n', '\r']).unwrap_or(value.len()))?;
    let opening = line.len() - line.trim_start_matches('\\').len();
    let quote = line
        .get(opening..)?
        .chars()
        .next()
        .filter(|letter| "\"'`".contains(*letter));
    if let Some(quote) = quote {
        let begin = opening + quote.len_utf8();
        let inner = line.get(begin..)?;
        let closes = |at: &usize| {
            let slashes = inner.get(..*at).unwrap_or_default();
            let slashes = slashes.len() - slashes.trim_end_matches('\\').len();
            // A quote that is escaped as the opening one is closes it; one that is escaped otherwise is part of the value.
            slashes == opening || (opening == 0 && slashes % 2 == 0)
        };
        let end = inner.match_indices(quote).map(|(at, _)| at).find(closes);
        let end = end.map_or(inner.len(), |end| end - opening.min(end));
        let inner = inner.get(..end)?;
        return is_value(name, inner).then_some((start + begin, start + begin + end));
    }
    let lower = name.to_lowercase();
    let whole_line = ["authorization", "cookie"].iter().any(|end| lower.ends_with(end));
    let word_end = |text: &str| {
        text.find(|letter: char| letter.is_whitespace() || ",;&\"'`".contains(letter))
            .unwrap_or(text.len())
    };
    let end = if whole_line { line.len() } else { word_end(line) };
    let word = line.get(..end)?;
    let end = if SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme)) {
        let rest = line.get(end..)?;
        let gap = rest.len() - rest.trim_start().len();
        end + gap + word_end(rest.trim_start())
    } else {
        end
    };
    is_value(name, word).then_some((start, start + end))
}

/// Whether this may be a secret. Many count tokens, or say that there is one.
fn is_value(name: &str, value: &str) -> bool {
    let counted =
        name.to_lowercase().ends_with("token") && value.chars().all(|letter| letter.is_ascii_digit());
    let said = ["true", "false", "null", "none", "nil"];
    !value.is_empty()
        && !value.starts_with(WITHHELD)
        && !counted
        && !said.iter().any(|word| value.eq_ignore_ascii_case(word))
}

fn find_private_key(text: &str) -> Option<usize> {
    text.match_indices(KEY_BEGINS)
        .map(|(start, _)| start)
        .find(|start| {
            let title = text.get(start + KEY_BEGINS.len()..).unwrap_or_default();
            title
                .split("-----")
                .next()
                .is_some_and(|title| title.ends_with("PRIVATE KEY"))
        })
}

/// `scheme://user:password@host` keeps scheme, user and host.
fn passwords_in_addresses(text: &str) -> Option<String> {
    let mut clean = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, after) = rest.split_at(start + 3);
        clean.push_str(before);
        let end = after.find(|letter: char| letter.is_whitespace() || "/?#\"'<>`".contains(letter));
        let authority = after.get(..end.unwrap_or(after.len())).unwrap_or_default();
        match authority.rsplit_once('@') {
            Some((user, host)) => {
                // A user alone may be a token: https://TOKEN@host is a common way to write one.
                match user.split_once(':') {
                    Some((name, _)) if !name.is_empty() && name.len() < SCHEME_CREDENTIAL => {
                        clean.push_str(name);
                    }
                    Some(_) => {}
                    None if user.len() < SCHEME_CREDENTIAL => clean.push_str(user),
                    None => clean.push_str(WITHHELD),
                }
                if user.contains(':') {
                    clean.push(':');
                    clean.push_str(WITHHELD);
                }
                clean.push('@');
                clean.push_str(host);
            }
            None => clean.push_str(authority),
        }
        rest = after.get(authority.len()..).unwrap_or_default();
    }
    clean.push_str(rest);
    (clean != text).then_some(clean)
}

/// Words that begin like a token of a well-known service, and those after `Bearer` and `Basic`.
fn tokens(text: &str) -> Option<String> {
    let in_token = |letter: char| letter.is_ascii_alphanumeric() || "_-.+/=~".contains(letter);
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    let mut after_scheme = false;
    while !rest.is_empty() {
        let end = rest.find(|letter| !in_token(letter)).unwrap_or(rest.len());
        let (word, others) = rest.split_at(end);
        if is_token(word) || (after_scheme && word.len() >= SCHEME_CREDENTIAL) {
            clean.push_str(WITHHELD);
        } else {
            clean.push_str(word);
        }
        if !word.is_empty() {
            after_scheme = SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
        }
        let gap = others.find(in_token).unwrap_or(others.len());
        let (gap, next) = others.split_at(gap);
        after_scheme &= gap.chars().all(char::is_whitespace);
        clean.push_str(gap);
        rest = next;
    }
    (clean != text).then_some(clean)
}

/// A token may stand behind a name, as in `key=token`, or a path.
fn is_token(word: &str) -> bool {
    let parts = word.split(['=', '/']);
    parts.into_iter().any(|part| {
        // What every JSON Web Token begins with is a brace and a quote, in base64; two dots separate its three parts.
        let web_token = part.starts_with("eyJ") && part.matches('.').count() >= 2;
        if web_token && part.len() >= WEB_TOKEN {
            return true;
        }
        SHAPES
            .iter()
            .any(|(begin, least)| part.starts_with(begin) && part.len() >= *least)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together here, so that nothing that looks for secrets in this file finds one.
    fn token() -> String {
        format!("ghp_{}", "a1B2".repeat(9))
    }

    #[test]
    fn tokens_are_recognised_wherever_they_stand() {
        let token = token();
        for text in [
            token.clone(),
            format!("use {token}, please"),
            format!("x={token}"),
            format!("see https://example.com/{token}/x"),
            format!("https://{token}@example.com/x"),
            format!("Authorization: Bearer {}", "abcdefgh".repeat(3)),
            format!("eyJhbGciOi{}.e30.sig", "x".repeat(40)),
        ] {
            let clean = withhold_text(&text);
            assert!(clean.contains(WITHHELD), "{text} became {clean}");
            assert!(
                !clean.contains(&token) && !clean.contains("abcdefghabcdefgh"),
                "{text} became {clean}"
            );
        }
    }

    #[test]
    fn passwords_in_addresses_go_and_the_rest_stays() {
        assert_eq!(
            withhold_text("postgres://app:hunter2@db:5432/x and https://example.com/a@b"),
            "postgres://app:[withheld]@db:5432/x and https://example.com/a@b"
        );
        assert_eq!(
            withhold_text("ssh://git@example.com/x"),
            "ssh://git@example.com/x"
        );
    }

    #[test]
    fn private_keys_go_as_a_whole_even_if_their_end_is_cut() {
        let begin = format!("{KEY_BEGINS}RSA PRIVATE KEY-----");
        let whole = format!("before {begin}\nMIIabc\n{KEY_ENDS}RSA PRIVATE KEY----- after");
        assert_eq!(withhold_text(&whole), "before [withheld] after");
        assert_eq!(
            withhold_text(&format!("before {begin}\nMIIabc")),
            "before [withheld]"
        );
        let public = format!("{KEY_BEGINS}CERTIFICATE-----\nMIIabc\n{KEY_ENDS}CERTIFICATE-----");
        assert_eq!(withhold_text(&public), public);
    }

    #[test]
    fn ordinary_texts_are_not_touched() {
        for text in [
            "",
            "fix the sk-learn import",
            "bearer of news",
            "a/b#12",
            "0123456789abcdef0123456789abcdef01234567",
            "AKIA",
        ] {
            assert!(matches!(withhold_text(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn values_behind_the_name_of_a_secret_go_and_the_rest_of_the_line_stays() {
        for (text, clean) in [
            ("DB_PASSWORD=hunter2 next", "DB_PASSWORD=[withheld] next"),
            (
                "export AWS_SECRET_ACCESS_KEY=wJalr+x/y==",
                "export AWS_SECRET_ACCESS_KEY=[withheld]",
            ),
            ("password: hunter2\nuser: ada", "password: [withheld]\nuser: ada"),
            (
                r#"{"apiKey": "a b", "mode": "x"}"#,
                r#"{"apiKey": "[withheld]", "mode": "x"}"#,
            ),
            (
                r#"{"secret":"a\"b","mode":"x"}"#,
                r#"{"secret":"[withheld]","mode":"x"}"#,
            ),
            (
                r#""{\"token\":\"abc\",\"n\":1}""#,
                r#""{\"token\":\"[withheld]\",\"n\":1}""#,
            ),
            ("GH_PAT='it is here' # yes", "GH_PAT='[withheld]' # yes"),
            (
                "https://x/y?token=abc&page=2",
                "https://x/y?token=[withheld]&page=2",
            ),
            ("Authorization: Bearer abc", "Authorization: [withheld]"),
            ("Cookie: a=b; c=d\nnext", "Cookie: [withheld]\nnext"),
            ("token: bearer abc next", "token: [withheld] next"),
            (
                "AccountKey=abc==;EndpointSuffix=x",
                "AccountKey=[withheld];EndpointSuffix=x",
            ),
        ] {
            assert_eq!(withhold_text(text), clean);
            assert_eq!(withhold_text(clean), clean, "once is enough");
        }
        for text in [
            "auth::token::parse failed",
            "usage: token=12",
            "has_token: true",
            "secretRef: forge",
            "maxTokens: 4096",
            "password:\n  from: the vault",
            "a == b: c",
            "secret://forge",
            "compat: x, bypass=1",
        ] {
            assert!(
                matches!(withhold_text(text), Cow::Borrowed(_)),
                "{text}: {}",
                withhold_text(text)
            );
        }
    }

    #[test]
    fn web_tokens_of_any_issuer_and_secret_addresses_go() {
        for begin in ["eyJ0eXAi", "eyJraWQi", "eyJhbGciOi"] {
            let token = format!("{begin}{}.e30.{}", "x".repeat(20), "y".repeat(20));
            assert_eq!(
                withhold_text(&format!("got {token}.")),
                "got [withheld]",
                "{begin}"
            );
        }
        assert_eq!(
            withhold_text("post to https://hooks.slack.com/services/T0/B0/abc, please"),
            "post to https://hooks.slack.com/services/[withheld], please"
        );
    }

    #[test]
    fn of_a_private_key_whose_beginning_is_cut_the_end_goes() {
        let end = format!("{KEY_ENDS}RSA PRIVATE KEY-----");
        let text = format!("MIIabc+/\nAAAA==\n{end}\nafter\n");
        assert_eq!(withhold_text(&text), "[withheld]\nafter\n");
        let other = format!("{KEY_ENDS}CERTIFICATE-----");
        assert!(matches!(withhold_text(&other), Cow::Borrowed(_)));
    }
}
