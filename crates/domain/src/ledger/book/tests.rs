//! Which book is asked, and what it is refused for.

use super::*;

fn entry(buyer: Option<ScopeId>, from: i64, markup_permille: u32) -> BookEntry {
    BookEntry {
        seller: ScopeId::Platform,
        buyer,
        from: Time(from),
        book: Book {
            markup_permille,
            ..Book::default()
        },
        tzdata: "2026a".into(),
    }
}

fn markup(books: &Books, buyer: ScopeId, at: i64) -> Option<u32> {
    books
        .at(ScopeId::Platform, buyer, Time(at))
        .map(|book| book.markup_permille)
}

#[test]
fn a_book_holds_from_its_moment_until_the_next() {
    let (one, two) = (
        ScopeId::Tenant(crate::id::TenantId(1)),
        ScopeId::Tenant(crate::id::TenantId(2)),
    );
    let mut books = Books::default();
    books.set(entry(None, 10, 1100), Time(10));
    books.set(entry(None, 20, 1200), Time(10));
    books.set(entry(Some(two), 15, 900), Time(12));
    let seen: Vec<_> = [5, 10, 19, 20]
        .iter()
        .map(|&at| markup(&books, one, at))
        .collect();
    assert_eq!(seen, [None, Some(1100), Some(1100), Some(1200)]);
    assert_eq!(markup(&books, two, 14), Some(1100));
    assert_eq!(
        markup(&books, two, 99),
        Some(900),
        "its own before the one for all"
    );
    // What is over leaves, what holds and what will hold stays; the same moment is said anew.
    books.set(entry(None, 30, 1300), Time(25));
    books.set(entry(None, 30, 1350), Time(25));
    assert_eq!(
        books
            .of(ScopeId::Platform)
            .filter(|entry| entry.buyer.is_none())
            .count(),
        2
    );
    assert_eq!(
        (markup(&books, one, 29), markup(&books, one, 30)),
        (Some(1200), Some(1350))
    );
    books.forget(two);
    assert_eq!(markup(&books, two, 99), Some(1350));
}

#[test]
fn bad_books_are_refused_by_their_field() {
    let tenant = ScopeId::Tenant(crate::id::TenantId(1));
    let field = |book: Book, seller| {
        book.check(seller)
            .expect_err("refused")
            .field
            .map(|field| field.to_string())
    };
    let price = |gpu_hour_micros| ClassPrice {
        gpu_hour_micros,
        vram_gib_hour_micros: 0,
    };
    for micros in [-1, i64::MIN, MAX_PRICE_MICROS + 1, i64::MAX] {
        let book = Book {
            classes: [("H100".into(), price(micros))].into(),
            ..Book::default()
        };
        assert_eq!(field(book, tenant).as_deref(), Some("/classes"));
    }
    for (fee, fine) in [
        (0, true),
        (1, true),
        (1000, true),
        (1010, false),
        (u32::MAX, false),
    ] {
        let book = Book {
            fee_permille: fee,
            ..Book::default()
        };
        assert_eq!(book.check(ScopeId::Platform).is_ok(), fine, "{fee}");
    }
    assert_eq!(
        field(
            Book {
                fee_permille: 1,
                ..Book::default()
            },
            tenant
        )
        .as_deref(),
        Some("/fee_permille")
    );
    assert_eq!(
        field(
            Book {
                minimum_micros: -1,
                ..Book::default()
            },
            tenant
        )
        .as_deref(),
        Some("/minimum_micros")
    );
    let window = DayWindow {
        from: super::super::clause::Clock(0),
        to: super::super::clause::Clock(60),
        permille: 500,
    };
    assert_eq!(
        field(
            Book {
                windows: vec![window],
                ..Book::default()
            },
            tenant
        )
        .as_deref(),
        Some("/zone")
    );
    assert_eq!(
        field(
            Book {
                zone: Some("Mars/Base".into()),
                ..Book::default()
            },
            tenant
        )
        .as_deref(),
        Some("/zone")
    );
    let tier = |from_gpu_hours| Tier {
        from_gpu_hours,
        permille: 900,
    };
    assert_eq!(
        field(
            Book {
                tiers: vec![tier(5), tier(5)],
                ..Book::default()
            },
            tenant
        )
        .as_deref(),
        Some("/tiers")
    );
    for text in [
        "{\"minimum_micros\":0.3}",
        "{\"minimum_micros\":1e30}",
        "{\"unknown\":1}",
        "{\"windows\":[{\"from\":\"24:00\",\"to\":\"06:00\",\"permille\":1}]}",
    ] {
        assert!(serde_json::from_str::<Book>(text).is_err(), "{text}");
    }
}
