//! The exchange.

use reqwest::Method;
use serde_json::json;
use tenure_domain::market::terms::MarketTerms;

use super::{Answer, Client};
use crate::v1::market::{
    AutoOfferView, BidView, BookView, Buy, ClassQuery, LeaseView, MakeOffer, OfferQuery, OfferView, PlaceBid,
    PlacedView, PriceHourView, PurchaseView, SetAutoOffer, TradeQuery,
};
use crate::v1::page::Page;

impl Client {
    pub async fn offers(&self, query: &OfferQuery) -> Answer<Page<OfferView>> {
        self.query("/v1/market/offers", query).await
    }

    pub async fn make_offer(&self, body: &MakeOffer, key: Option<&str>) -> Answer<OfferView> {
        self.change(Method::POST, "/v1/market/offers", body, key).await
    }

    pub async fn withdraw_offer(&self, offer: &str) -> Answer<()> {
        self.done(Method::DELETE, &format!("/v1/market/offers/{offer}"))
            .await
    }

    pub async fn auto_offers(&self, query: &TradeQuery) -> Answer<Page<AutoOfferView>> {
        self.query("/v1/market/auto-offers", query).await
    }

    pub async fn set_auto_offer(
        &self,
        scope: &str,
        class: &str,
        body: &SetAutoOffer,
    ) -> Answer<AutoOfferView> {
        let path = format!("/v1/market/auto-offers/{scope}/{class}");
        self.change(Method::PUT, &path, body, None).await
    }

    pub async fn remove_auto_offer(&self, scope: &str, class: &str) -> Answer<()> {
        self.done(Method::DELETE, &format!("/v1/market/auto-offers/{scope}/{class}"))
            .await
    }

    pub async fn buy(&self, body: &Buy, key: Option<&str>) -> Answer<PurchaseView> {
        self.change(Method::POST, "/v1/market/buy", body, key).await
    }

    pub async fn bids(&self, query: &TradeQuery) -> Answer<Page<BidView>> {
        self.query("/v1/market/bids", query).await
    }

    pub async fn place_bid(&self, body: &PlaceBid, key: Option<&str>) -> Answer<PlacedView> {
        self.change(Method::POST, "/v1/market/bids", body, key).await
    }

    pub async fn cancel_bid(&self, bid: &str) -> Answer<()> {
        self.done(Method::DELETE, &format!("/v1/market/bids/{bid}")).await
    }

    pub async fn leases(&self, query: &TradeQuery) -> Answer<Page<LeaseView>> {
        self.query("/v1/market/leases", query).await
    }

    pub async fn recall_lease(&self, lease: &str) -> Answer<LeaseView> {
        let path = format!("/v1/market/leases/{lease}/recall");
        self.change(Method::POST, &path, &json!({}), None).await
    }

    /// Gives it back.
    pub async fn return_lease(&self, lease: &str) -> Answer<()> {
        let path = format!("/v1/market/leases/{lease}/return");
        self.done(Method::POST, &path).await
    }

    pub async fn market_book(&self, query: &ClassQuery) -> Answer<Page<BookView>> {
        self.query("/v1/market/book", query).await
    }

    pub async fn price_index(&self, query: &ClassQuery) -> Answer<Page<PriceHourView>> {
        self.query("/v1/market/index", query).await
    }

    pub async fn market_terms(&self) -> Answer<MarketTerms> {
        self.get("/v1/market/terms").await
    }

    pub async fn set_market_terms(&self, terms: &MarketTerms) -> Answer<MarketTerms> {
        self.change(Method::PUT, "/v1/market/terms", terms, None).await
    }
}
