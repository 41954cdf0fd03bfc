//! Pages of lists. A cursor is a sealed box that opens only for the list, the filters and the principal it was
//! given out for, so it tells nothing and cannot be made up.

use tenure_api::v1::page::{DEFAULT_PAGE, MAX_PAGE, Page};

use super::Shared;
use super::fail::{Answer, Fail};
use crate::auth::Caller;

/// One page of one list, as one caller asked for it.
pub(crate) struct Turn<'a> {
    shared: &'a Shared,
    /// What cursors are bound to.
    list: String,
    pub limit: usize,
    /// Where the last page ended.
    pub after: Option<String>,
}

impl<'a> Turn<'a> {
    /// `list` names the route and its filters.
    pub fn new(
        shared: &'a Shared,
        caller: &Caller,
        list: &str,
        limit: Option<u32>,
        cursor: Option<&str>,
    ) -> Answer<Turn<'a>> {
        Turn::with_default(shared, caller, list, limit, cursor, DEFAULT_PAGE)
    }

    /// For short lists that are usually wanted whole.
    pub fn whole(
        shared: &'a Shared,
        caller: &Caller,
        list: &str,
        limit: Option<u32>,
        cursor: Option<&str>,
    ) -> Answer<Turn<'a>> {
        Turn::with_default(shared, caller, list, limit, cursor, MAX_PAGE)
    }

    fn with_default(
        shared: &'a Shared,
        caller: &Caller,
        list: &str,
        limit: Option<u32>,
        cursor: Option<&str>,
        default: u32,
    ) -> Answer<Turn<'a>> {
        let limit = limit.unwrap_or(default);
        if limit == 0 || limit > MAX_PAGE {
            return Err(Fail::invalid(
                "limit",
                format!("a page has 1 to {MAX_PAGE} items"),
            ));
        }
        let list = format!("cursor/{list}/{}", caller.user);
        let after = cursor.map(|cursor| open(shared, &list, cursor)).transpose()?;
        Ok(Turn {
            shared,
            list,
            limit: limit as usize,
            after,
        })
    }

    /// Takes a page out of items that come in the order of their keys; `key` says where an item stands.
    pub fn page<T>(&self, items: impl Iterator<Item = T>, key: impl Fn(&T) -> String) -> Page<T> {
        let mut items: Vec<T> = items.take(self.limit + 1).collect();
        let more = items.len() > self.limit;
        items.truncate(self.limit);
        let next = if more {
            items.last().map(|last| self.seal(&key(last)))
        } else {
            None
        };
        Page { items, next }
    }

    pub fn seal(&self, key: &str) -> String {
        let sealed = self.shared.app.keyring.seal(&self.list, key.as_bytes());
        sealed.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn open(shared: &Shared, list: &str, cursor: &str) -> Answer<String> {
    let bad = || Fail::invalid("cursor", "the cursor is not one of this list").hint("start again without it");
    let (pairs, rest) = cursor.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || cursor.len() > 4096 {
        return Err(bad());
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes: Option<Vec<u8>> = pairs
        .iter()
        .map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8))
        .collect();
    let plain = shared
        .app
        .keyring
        .open_box(list, &bytes.ok_or_else(bad)?)
        .map_err(|_| bad())?;
    String::from_utf8(plain).map_err(|_| bad())
}
