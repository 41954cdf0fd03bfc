//! Bookings, their terms and the calendar of their windows.

use reqwest::Method;
use tenure_domain::booking::terms::Terms;

use super::{Answer, Client, ClientError, PATIENCE, with_query};
use crate::v1::booking::{
    BookingQuery, BookingView, CalendarQuery, CalendarWindow, CancelBooking, EditBooking, ExtendBooking,
    FeedQuery, MakeBooking, QuoteView, TransferBooking,
};
use crate::v1::page::Page;

impl Client {
    pub async fn bookings(&self, query: &BookingQuery) -> Answer<Page<BookingView>> {
        self.query("/v1/bookings", query).await
    }

    pub async fn booking(&self, booking: &str) -> Answer<BookingView> {
        self.get(&format!("/v1/bookings/{booking}")).await
    }

    pub async fn make_booking(&self, body: &MakeBooking, key: Option<&str>) -> Answer<BookingView> {
        self.change(Method::POST, "/v1/bookings", body, key).await
    }

    pub async fn quote_booking(&self, body: &MakeBooking) -> Answer<QuoteView> {
        self.change(Method::POST, "/v1/bookings/quote", body, None).await
    }

    pub async fn edit_booking(&self, booking: &str, body: &EditBooking) -> Answer<BookingView> {
        self.change(Method::POST, &format!("/v1/bookings/{booking}/edit"), body, None)
            .await
    }

    pub async fn extend_booking(&self, booking: &str, body: &ExtendBooking) -> Answer<BookingView> {
        self.change(
            Method::POST,
            &format!("/v1/bookings/{booking}/extend"),
            body,
            None,
        )
        .await
    }

    pub async fn transfer_booking(&self, booking: &str, body: &TransferBooking) -> Answer<BookingView> {
        self.change(
            Method::POST,
            &format!("/v1/bookings/{booking}/transfer"),
            body,
            None,
        )
        .await
    }

    pub async fn cancel_booking(&self, booking: &str, body: &CancelBooking) -> Answer<()> {
        let path = format!("/v1/bookings/{booking}/cancel");
        let request = self.request(Method::POST, &path).json(body);
        self.send(request.timeout(PATIENCE)).await.map(drop)
    }

    pub async fn booking_terms(&self) -> Answer<Terms> {
        self.get("/v1/booking-terms").await
    }

    pub async fn set_booking_terms(&self, terms: &Terms) -> Answer<Terms> {
        self.change(Method::PUT, "/v1/booking-terms", terms, None).await
    }

    /// Windows in the order they begin.
    pub async fn calendar(&self, query: &CalendarQuery) -> Answer<Page<CalendarWindow>> {
        self.query("/v1/calendar", query).await
    }

    /// Windows as an iCalendar file.
    pub async fn calendar_feed(&self, query: &FeedQuery) -> Answer<String> {
        let request = self.request(Method::GET, &with_query("/v1/calendar.ics", query));
        let response = self.send(request.timeout(PATIENCE)).await?;
        response.text().await.map_err(|source| ClientError::Unreachable {
            server: self.server.clone(),
            source,
        })
    }
}
