//! Price books, bill rows, adjustments, invoices and analysis.

use futures_util::{Stream, StreamExt};
use reqwest::Method;
use tenure_domain::ledger::sheet::Sheet;

use super::{Answer, Client, ClientError, with_query};
use crate::v1::adjustment::{Adjust, AdjustmentView};
use crate::v1::analysis::{AnalysisQuery, AnalysisView, ForecastQuery, ForecastView};
use crate::v1::bill::{BillQuery, BillRowView};
use crate::v1::invoice::{
    DraftQuery, FileQuery, InvoiceQuery, InvoiceRowsQuery, InvoiceView, IssueInvoice, PayInvoice,
};
use crate::v1::page::Page;
use crate::v1::price_book::{PriceBookView, SetPriceBook};

impl Client {
    /// What a scope pays by the hour.
    pub async fn scope_prices(&self, scope: &str) -> Answer<Sheet> {
        self.get(&format!("/v1/scopes/{scope}/prices")).await
    }

    /// The books by which a scope sells.
    pub async fn price_books(&self, scope: &str, cursor: Option<&str>) -> Answer<Page<PriceBookView>> {
        let path = format!("/v1/scopes/{scope}/price-books");
        self.query(&path, &[("cursor", cursor)]).await
    }

    pub async fn set_price_book(&self, scope: &str, body: &SetPriceBook) -> Answer<PriceBookView> {
        self.put(&format!("/v1/scopes/{scope}/price-books"), body, None)
            .await
    }

    pub async fn bill_rows(&self, query: &BillQuery) -> Answer<Page<BillRowView>> {
        self.query("/v1/bill-rows", query).await
    }

    pub async fn adjust(&self, body: &Adjust, key: Option<&str>) -> Answer<AdjustmentView> {
        self.change(Method::POST, "/v1/adjustments", body, key).await
    }

    pub async fn draft_invoice(&self, query: &DraftQuery) -> Answer<InvoiceView> {
        self.query("/v1/invoice-draft", query).await
    }

    pub async fn issue_invoice(&self, body: &IssueInvoice, key: Option<&str>) -> Answer<InvoiceView> {
        self.change(Method::POST, "/v1/invoices", body, key).await
    }

    pub async fn invoices(&self, query: &InvoiceQuery) -> Answer<Page<InvoiceView>> {
        self.query("/v1/invoices", query).await
    }

    pub async fn invoice(&self, invoice: &str) -> Answer<InvoiceView> {
        self.get(&format!("/v1/invoices/{invoice}")).await
    }

    pub async fn pay_invoice(&self, invoice: &str, body: &PayInvoice) -> Answer<InvoiceView> {
        self.change(Method::POST, &format!("/v1/invoices/{invoice}/pay"), body, None)
            .await
    }

    pub async fn invoice_rows(&self, invoice: &str, query: &InvoiceRowsQuery) -> Answer<Page<BillRowView>> {
        self.query(&format!("/v1/invoices/{invoice}/rows"), query).await
    }

    /// The invoice as a file, as it comes: it may be large.
    pub async fn invoice_file(
        &self,
        invoice: &str,
        query: &FileQuery,
    ) -> Answer<impl Stream<Item = Answer<Vec<u8>>> + use<>> {
        let path = with_query(&format!("/v1/invoices/{invoice}/file"), query);
        let response = self.send(self.request(Method::GET, &path)).await?;
        let server = self.server.clone();
        Ok(response.bytes_stream().map(move |piece| {
            let lost = |source| ClientError::Unreachable {
                server: server.clone(),
                source,
            };
            piece.map(|bytes| bytes.to_vec()).map_err(lost)
        }))
    }

    pub async fn analysis(&self, query: &AnalysisQuery) -> Answer<AnalysisView> {
        self.query("/v1/analysis", query).await
    }

    pub async fn forecast(&self, query: &ForecastQuery) -> Answer<ForecastView> {
        self.query("/v1/forecast", query).await
    }
}
