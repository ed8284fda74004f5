//! The methods that every kind has, by the name of the kind.

use tonic::{
    Request, Response, Status,
    client::{Grpc, GrpcService},
    codegen::{Body, Bytes, StdError, http::uri::PathAndQuery},
};

use crate::{
    SERVICE,
    v1::{
        ApplyRequest, ApplyResponse, DeleteRequest, DeleteResponse, GetRequest, GetResponse, ListRequest,
        ListResponse,
    },
};

/// The largest answer that a client reads: a page of the largest objects that Kubernetes keeps is not much larger.
pub const ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;

/// What can be done with the objects of every kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    List,
    Get,
    Apply,
    Delete,
}

impl Verb {
    pub const ALL: [Self; 4] = [Self::List, Self::Get, Self::Apply, Self::Delete];

    /// How the method of a kind is called: `GetAgentRun`, and `ListAgentRuns` in the plural.
    pub fn method(self, kind: &str) -> String {
        match self {
            Self::List => format!("List{}", plural(kind)),
            Self::Get => format!("Get{kind}"),
            Self::Apply => format!("Apply{kind}"),
            Self::Delete => format!("Delete{kind}"),
        }
    }
}

fn plural(kind: &str) -> String {
    match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    }
}

/// A request that every kind has a method for.
pub trait ByKind: prost::Message + 'static {
    const VERB: Verb;
    type Answer: prost::Message + Default + 'static;
}

impl ByKind for ListRequest {
    const VERB: Verb = Verb::List;
    type Answer = ListResponse;
}

impl ByKind for GetRequest {
    const VERB: Verb = Verb::Get;
    type Answer = GetResponse;
}

impl ByKind for ApplyRequest {
    const VERB: Verb = Verb::Apply;
    type Answer = ApplyResponse;
}

impl ByKind for DeleteRequest {
    const VERB: Verb = Verb::Delete;
    type Answer = DeleteResponse;
}

/// Calls the method of a kind, such as `AgentRun`, that the request is for.
pub async fn call<C, Q>(channel: C, kind: &str, request: Request<Q>) -> Result<Response<Q::Answer>, Status>
where
    C: GrpcService<tonic::body::Body>,
    C::Error: Into<StdError>,
    C::ResponseBody: Body<Data = Bytes> + Send + 'static,
    <C::ResponseBody as Body>::Error: Into<StdError> + Send,
    Q: ByKind,
{
    let method = Q::VERB.method(kind);
    let path: PathAndQuery = format!("/{SERVICE}/{method}")
        .parse()
        .map_err(|_| Status::invalid_argument(format!("{kind} is no kind")))?;
    let mut client = Grpc::new(channel).max_decoding_message_size(ANSWER_MAX_BYTES);
    client
        .ready()
        .await
        .map_err(|error| Status::from_error(error.into()))?;
    client
        .unary(request, path, tonic_prost::ProstCodec::default())
        .await
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::FileDescriptorSet;

    use super::*;
    use crate::DESCRIPTORS;

    fn contract() -> FileDescriptorSet {
        FileDescriptorSet::decode(DESCRIPTORS).expect("the descriptors can be read")
    }

    #[test]
    fn every_kind_has_all_four_methods() {
        let contract = contract();
        let services = contract.file.iter().flat_map(|file| &file.service);
        let methods: Vec<&str> = services
            .flat_map(|service| &service.method)
            .map(prost_types::MethodDescriptorProto::name)
            .collect();
        let kinds: Vec<&str> = methods
            .iter()
            .filter_map(|name| name.strip_prefix("Apply"))
            .collect();
        assert_eq!(kinds.len(), 19);
        for kind in kinds {
            for verb in Verb::ALL {
                let method = verb.method(kind);
                assert!(methods.contains(&method.as_str()), "{method} is missing");
            }
        }
    }

    #[test]
    fn the_numbers_of_a_submission_are_those_of_the_contract() {
        let contract = contract();
        let submit = contract
            .file
            .iter()
            .flat_map(|file| &file.message_type)
            .find(|message| message.name() == "SubmitAgentRunRequest")
            .expect("the message");
        let fields: Vec<(i32, &str)> = submit
            .field
            .iter()
            .map(|field| (field.number(), field.name()))
            .take(12)
            .collect();
        assert_eq!(
            fields,
            [
                (1, "namespace"),
                (2, "agent_name"),
                (3, "implementation_name"),
                (4, "runtime_type"),
                (5, "runtime_config"),
                (6, "parameters"),
                (7, "idempotency_key"),
                (8, "workload"),
                (9, "memory_ref"),
                (10, "vcs_ref"),
                (11, "vcs_policy_mode"),
                (12, "vcs_policy_required"),
            ]
        );
    }
}
