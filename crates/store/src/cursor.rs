//! Pages of a list, and the word that leads from one to the next.
//!
//! A page is found by the key of the last line before it, never by counting lines: its cost does not grow with its distance, and
//! lines that are added meanwhile neither repeat nor hide others. The cursor is opaque to callers, and checked: one that is
//! damaged, or was given out for another list or another filter, is an error and not a page of something else.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use crate::Error;

/// More in one answer would hold up others behind it.
const MAX_LIMIT: u32 = 500;
const DEFAULT_LIMIT: u32 = 50;
/// Cursors of a version that reads them otherwise are told as such.
const VERSION: u8 = 1;
const CHECK_BYTES: usize = 6;
/// Version, list, two numbers, the filter's digest, the check.
const BYTES: usize = 2 + 8 + 8 + 8 + CHECK_BYTES;

/// Which page of a list is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// How many lines, from 1 to 500.
    pub limit: u32,
    /// Where the page before it ended, as [`Page::next`] of the same list with the same filter has it.
    pub cursor: Option<String>,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self {
            limit: DEFAULT_LIMIT,
            cursor: None,
        }
    }
}

/// A page of a list, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Leads to the next page. `None` if this is the last one.
    pub next: Option<String>,
}

/// The lists that have pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Runs = 1,
    Approvals = 2,
    Audit = 3,
    Deliveries = 4,
}

/// The key of a line: the second number orders lines that share the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) i64, pub(crate) i64);

/// What a page of one list with one filter begins after, and how its successor is found.
#[derive(Debug)]
pub(crate) struct Paging {
    list: List,
    filter: [u8; 8],
    pub(crate) limit: usize,
    pub(crate) after: Option<Key>,
}

impl Paging {
    /// `filter` is all that the caller asked for apart from the page, in any fixed form.
    pub(crate) fn new(list: List, filter: &str, request: &PageRequest) -> Result<Self, Error> {
        if !(1..=MAX_LIMIT).contains(&request.limit) {
            return Err(Error::Query {
                field: "limit",
                value: request.limit.to_string(),
                why: format!("give a number from 1 to {MAX_LIMIT}"),
            });
        }
        let filter = digest(filter.as_bytes());
        let after = match &request.cursor {
            Some(cursor) => Some(decode(list, filter, cursor)?),
            None => None,
        };
        Ok(Self {
            list,
            filter,
            limit: usize::try_from(request.limit).unwrap_or(usize::MAX),
            after,
        })
    }

    /// How many rows to ask for: one more than the page has tells whether there is another.
    pub(crate) fn rows(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX).saturating_add(1)
    }

    /// Makes the page out of the lines that were found, each with its key.
    pub(crate) fn page<T>(&self, mut found: Vec<(Key, T)>) -> Page<T> {
        let more = found.len() > self.limit;
        found.truncate(self.limit);
        let last = found.last().map(|(key, _)| *key);
        Page {
            next: last
                .filter(|_| more)
                .map(|key| encode(self.list, self.filter, key)),
            items: found.into_iter().map(|(_, item)| item).collect(),
        }
    }
}

fn digest(bytes: &[u8]) -> [u8; 8] {
    let mut digest = [0; 8];
    for (to, from) in digest.iter_mut().zip(Sha256::digest(bytes)) {
        *to = from;
    }
    digest
}

fn encode(list: List, filter: [u8; 8], key: Key) -> String {
    let mut bytes = Vec::with_capacity(BYTES);
    bytes.push(VERSION);
    bytes.push(list as u8);
    bytes.extend(key.0.to_be_bytes());
    bytes.extend(key.1.to_be_bytes());
    bytes.extend(filter);
    let check = digest(&bytes);
    bytes.extend(check.iter().take(CHECK_BYTES));
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(list: List, filter: [u8; 8], cursor: &str) -> Result<Key, Error> {
    const DAMAGED: Error = Error::Cursor { why: "it is damaged" };
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).map_err(|_| DAMAGED)?;
    let bytes: [u8; BYTES] = bytes.try_into().map_err(|_| DAMAGED)?;
    let (body, check) = bytes.split_at(BYTES - CHECK_BYTES);
    if !digest(body).starts_with(check) {
        return Err(DAMAGED);
    }
    let &[version, of_list, ref rest @ ..] = body else {
        return Err(DAMAGED);
    };
    if version != VERSION {
        return Err(Error::Cursor {
            why: "it was made by another version",
        });
    }
    if of_list != list as u8 {
        return Err(Error::Cursor {
            why: "it is of another list",
        });
    }
    let (first, rest) = rest.split_first_chunk::<8>().ok_or(DAMAGED)?;
    let (second, of_filter) = rest.split_first_chunk::<8>().ok_or(DAMAGED)?;
    if of_filter != filter {
        return Err(Error::Cursor {
            why: "it is of the same list with another filter",
        });
    }
    Ok(Key(i64::from_be_bytes(*first), i64::from_be_bytes(*second)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(limit: u32, cursor: Option<String>) -> PageRequest {
        PageRequest { limit, cursor }
    }

    fn cursor() -> String {
        let paging = Paging::new(List::Runs, "phase=Failed", &asking(1, None)).expect("fine");
        let page = paging.page(vec![(Key(9, 0), "a"), (Key(8, 0), "b")]);
        assert_eq!(page.items, ["a"]);
        page.next.expect("there is more")
    }

    #[test]
    fn a_page_that_is_not_the_last_leads_to_the_next() {
        let paging = Paging::new(List::Runs, "phase=Failed", &asking(1, Some(cursor()))).expect("its own");
        assert_eq!(paging.after, Some(Key(9, 0)));
        assert_eq!(paging.page(vec![(Key(8, 0), "b")]).next, None);
    }

    #[test]
    fn a_cursor_of_something_else_is_told() {
        let why = |list, filter: &str, cursor: &str| {
            let asked = asking(1, Some(cursor.to_owned()));
            Paging::new(list, filter, &asked)
                .expect_err("not its own")
                .to_string()
        };
        assert!(why(List::Audit, "phase=Failed", &cursor()).contains("another list"));
        assert!(why(List::Runs, "phase=Pending", &cursor()).contains("another filter"));
        assert!(why(List::Runs, "phase=Failed", "not a cursor").contains("damaged"));
        assert!(why(List::Runs, "phase=Failed", "").contains("damaged"));
        for index in 0..cursor().len() {
            let mut bent = cursor().into_bytes();
            bent[index] = if bent[index] == b'A' { b'B' } else { b'A' };
            let bent = String::from_utf8(bent).expect("letters");
            let said = Paging::new(List::Runs, "phase=Failed", &asking(1, Some(bent.clone())));
            // The last letter carries fewer bits than it could, so that changing it may change nothing.
            assert!(said.is_err() || index + 1 == bent.len(), "{bent}");
        }
    }

    #[test]
    fn a_page_has_at_least_one_line_and_at_most_five_hundred() {
        for limit in [0, 501] {
            let error = Paging::new(List::Runs, "", &asking(limit, None)).expect_err("out of range");
            assert!(
                error.is_bad_request() && error.to_string().contains("from 1 to 500"),
                "{error}"
            );
        }
    }
}
