//! Gates that wait for a decision, and decisions about them, as the control plane tells and writes them.

use jangar_api::orchestration::orchestration_run::ApprovalDecision;
use jangar_proto::v1::{DecideRequest, ListApprovalsRequest, PendingApproval};
use tonic::{Code, Response};

use super::{ALL_NAMESPACES, Grpc, LIST_MAX, PAGE};
use crate::error::Error;

impl Grpc {
    /// All gates that wait, page by page, and in words the runs that cannot be read. Without what they show, if it is only about how many.
    pub async fn approvals(
        &self,
        namespace: Option<&str>,
        brief: bool,
    ) -> Result<(Vec<PendingApproval>, Vec<String>), Error> {
        let mut request = ListApprovalsRequest {
            namespace: namespace.unwrap_or(ALL_NAMESPACES).to_owned(),
            limit: PAGE,
            cursor: String::new(),
            brief,
        };
        let (mut gates, mut unreadable) = (Vec::new(), Vec::new());
        loop {
            let asked = self.asked(request.clone());
            let page = self.client().list_approvals(asked).await;
            let doing = format!("gates cannot be listed at {}", self.address);
            let page = page.map(Response::into_inner).map_err(self.failed(doing))?;
            gates.extend(page.approvals);
            unreadable.extend(page.unreadable);
            if page.next_cursor.is_empty() {
                return Ok((gates, unreadable));
            }
            if gates.len() + unreadable.len() >= LIST_MAX {
                return Err(Error::Validation(format!(
                    "more than {LIST_MAX} gates wait: name a namespace with -n"
                )));
            }
            request.cursor = page.next_cursor;
        }
    }

    /// Decides a gate, as the caller. What does not fit what is there is for them to look at.
    pub async fn decide(&self, request: DecideRequest, decision: &ApprovalDecision) -> Result<(), Error> {
        let request = self.asked(request);
        let mut client = self.client();
        let answer = match decision {
            ApprovalDecision::Approved => client.approve_orchestration_run(request).await,
            _ => client.reject_orchestration_run(request).await,
        };
        answer.map(drop).map_err(|status| match status.code() {
            Code::FailedPrecondition => Error::Validation(status.message().to_owned()),
            _ => self.failed("the decision cannot be written")(status),
        })
    }
}
