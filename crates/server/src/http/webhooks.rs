//! Deliveries of webhooks. They carry no token: the signature of the body says who sends.

use std::sync::Arc;

use axum::extract::{Request, State};

use super::{
    Peer,
    answer::Answer,
    bodies::Delivered,
    extract::{is_json, read},
};
use crate::{
    plane::ControlPlane,
    refusal::Refusal,
    webhooks::{self, Envelope, Received, Sender},
};

pub(super) async fn github(
    State(plane): State<Arc<ControlPlane>>,
    request: Request,
) -> Result<Answer<Delivered>, Refusal> {
    receive(&plane, Sender::Github, request).await
}

pub(super) async fn linear(
    State(plane): State<Arc<ControlPlane>>,
    request: Request,
) -> Result<Answer<Delivered>, Refusal> {
    receive(&plane, Sender::Linear, request).await
}

async fn receive(
    plane: &Arc<ControlPlane>,
    sender: Sender,
    request: Request,
) -> Result<Answer<Delivered>, Refusal> {
    // What has no signature is not even read.
    let envelope = Envelope::read(sender, request.headers())?;
    is_json(request.headers())?;
    let peer = request.extensions().get::<Peer>();
    let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.0.to_string());
    let body = read(request).await?;
    // Linear takes no other good answer than 200.
    Ok(Answer::ok(
        match webhooks::receive(plane, envelope, peer, &body).await? {
            Received::Ignored(reason) => Delivered::Ignored {
                ignored: true,
                reason,
            },
            Received::Taken(taken) => Delivered::Taken {
                queued: taken.queued,
                deduped: taken.deduped,
                synced: taken.synced,
                outdated: taken.outdated,
            },
        },
    ))
}
