//! What is served beside objects: health, version, metrics, discovery, OpenAPI.

use std::sync::Arc;

use axum::response::Response;
use http::{StatusCode, header, request::Parts};

use crate::{
    discovery::{self, Root},
    error::ApiError,
    negotiate::{self, Discovery, Encoding},
    openapi,
    request::{self, Route},
    resource::Resource,
    server::{
        Core,
        registry::Registry,
        respond::{no_such_resource, page_not_found, text, typed},
    },
};

/// Everything that is not about objects.
pub(super) fn answer(
    core: &Core,
    registry: &Registry,
    route: &Route,
    parts: &Parts,
) -> Result<Response, ApiError> {
    if parts.method != http::Method::GET && parts.method != http::Method::HEAD {
        return Err(request::method_not_allowed());
    }
    let headers = &parts.headers;
    let resources = registry.resources();
    let document = match route {
        Route::Root => discovery::root_paths(resources),
        Route::Health(..) => return Ok(text("ok")),
        Route::Metrics => return Ok(text(core.metrics.render(&core.store.stats()))),
        Route::Version => {
            // Always indented and never anything but JSON, as people read it with curl.
            let bytes = Encoding::PrettyJson.encode(&discovery::version_info())?;
            return Ok(typed(StatusCode::OK, Encoding::PrettyJson.content_type(), bytes));
        }
        Route::ApiRoot | Route::ApisRoot => return discovery_root(resources, route, parts),
        Route::Group(group) => match discovery::group(resources, group) {
            Some(group) => group,
            None => return Ok(page_not_found()),
        },
        Route::GroupVersion { group, version } => {
            discovery::resource_list(resources, group, version).ok_or_else(no_such_resource)?
        }
        Route::OpenApiIndex => {
            let documents = registry.documents();
            openapi::index(
                documents
                    .iter()
                    .map(|document| (document.path.as_str(), document.hash.as_str())),
            )
        }
        Route::OpenApiDocument { group, version } => {
            let path = openapi::path(group, version);
            return Ok(
                match registry.documents().iter().find(|document| document.path == path) {
                    Some(document) => typed(StatusCode::OK, "application/json", document.bytes.clone()),
                    None => page_not_found(),
                },
            );
        }
        Route::OpenApiV2 if wants_protobuf(parts) => {
            return Ok(typed(
                StatusCode::OK,
                openapi::V2_PROTOBUF_TYPE,
                openapi::v2_protobuf(),
            ));
        }
        Route::OpenApiV2 => openapi::v2(),
        Route::Unknown | Route::Resource(_) => return Ok(page_not_found()),
    };
    let encoding = negotiate::plain(headers)?;
    Ok(typed(
        StatusCode::OK,
        encoding.content_type(),
        encoding.encode(&document)?,
    ))
}

/// Go clients ask for the older OpenAPI document in protobuf and read nothing else.
fn wants_protobuf(parts: &Parts) -> bool {
    let accept = parts
        .headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.starts_with("application/com.github.proto-openapi.spec.v2"))
}

/// `/api` or `/apis`, in one document or only the groups.
fn discovery_root(resources: &[Arc<Resource>], route: &Route, parts: &Parts) -> Result<Response, ApiError> {
    let root = if *route == Route::ApiRoot {
        Root::Core
    } else {
        Root::Groups
    };
    let wanted = negotiate::discovery(&parts.headers)?;
    let value = match (wanted, root) {
        (Discovery::Aggregated(version, _), root) => discovery::aggregated(resources, root, version),
        (Discovery::Legacy(_), Root::Core) => {
            let host = parts
                .headers
                .get(header::HOST)
                .and_then(|host| host.to_str().ok())
                .unwrap_or("");
            discovery::api_versions(resources, host)
        }
        (Discovery::Legacy(_), Root::Groups) => discovery::group_list(resources),
    };
    Ok(typed(
        StatusCode::OK,
        wanted.content_type(),
        wanted.encoding().encode(&value)?,
    ))
}
