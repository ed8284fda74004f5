//! Takes a request apart, has it answered, and counts it.

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    body::Body,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header, request::Parts};
use serde_json::Value;

use crate::{
    body,
    builtin::{Builtin, Endpoint, User, protobuf},
    error::{ApiError, Reason, Subject},
    field::{FieldError, FieldPath},
    negotiate::{self, BodyFormat, Encoding},
    request::{
        self, DeleteOptions, ListOptions, Query, ResourceRequest, Route, Verb, WatchOptions, WriteOptions,
    },
    resource::Scope,
    server::{
        Core, auth,
        delete::Deleted,
        logs::LogRequest,
        metrics::{RequestLabels, VerbLabels},
        plain,
        present::Presenter,
        registry::Registry,
        respond::{add_warnings, error_response, no_such_resource, page_not_found, success, typed},
        target::Target,
        write::{Final, WriteContext, Written},
    },
};

/// The service of a server. `trusted` is the caller of every request; without it a bearer token says who calls.
pub(super) fn router(core: Arc<Core>, trusted: Option<User>) -> Router {
    Router::new().fallback(async move |request: Request| {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let mut labels = RequestLabels {
            verb: "other",
            resource: String::new(),
            code: 0,
        };
        let encoding = negotiate::error_encoding(&parts.headers);
        let answer = answer(&core, trusted.as_ref(), &parts, body, &mut labels).await;
        let response = answer.unwrap_or_else(|error| error_response(&error, encoding));
        labels.code = response.status().as_u16();
        core.metrics
            .seconds
            .get_or_create(&VerbLabels { verb: labels.verb })
            .observe(started.elapsed().as_secs_f64());
        core.metrics.requests.get_or_create(&labels).inc();
        response
    })
}

async fn answer(
    core: &Arc<Core>,
    trusted: Option<&User>,
    parts: &Parts,
    body: Body,
    labels: &mut RequestLabels,
) -> Result<Response, ApiError> {
    let user = match trusted {
        Some(user) => user.clone(),
        None => auth::authenticate(&core.tokens, &parts.headers)?,
    };
    // The body is read whatever comes of the request, so that the connection can carry the next one.
    let body = body::read(&parts.headers, body).await?;
    let query = Query::parse(parts.uri.query())?;
    let registry = core.registry();
    match Route::parse(parts.uri.path())? {
        Route::Resource(request) => {
            if registry
                .find(&request.group, &request.version, &request.resource)
                .is_none()
            {
                // Where the whole group is Kubernetes' own, its server knows that the resource is missing.
                let is_own = registry.resources().iter().any(|resource| {
                    !resource.is_custom()
                        && resource.group == request.group
                        && resource.version(&request.version).is_some()
                });
                return if is_own {
                    Err(no_such_resource())
                } else {
                    Ok(page_not_found())
                };
            }
            let call = Call {
                core,
                registry,
                user,
                parts,
                query,
            };
            let mut warnings = Vec::new();
            let encoding = negotiate::error_encoding(&parts.headers);
            let answer = call.run(&request, &body, labels, &mut warnings).await;
            let mut response = answer.unwrap_or_else(|error| error_response(&error, encoding));
            add_warnings(&mut response, &warnings);
            Ok(response)
        }
        route => plain::answer(core, &registry, &route, parts),
    }
}

/// One request about objects.
struct Call<'a> {
    core: &'a Arc<Core>,
    registry: Arc<Registry>,
    user: User,
    parts: &'a Parts,
    query: Query,
}

/// Jobs are the one kind that leaves its dependants behind unless it is told otherwise, which surprises people.
fn warn_of_orphans(target: &Target, options: &DeleteOptions, warnings: &mut Vec<String>) {
    if target.served.resource.builtin == Some(Builtin::Job) && options.propagation.is_none() {
        warnings.push(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set \
             propagationPolicy=Orphan to suppress this warning"
                .to_owned(),
        );
    }
}

impl Call<'_> {
    async fn run(
        &self,
        request: &ResourceRequest,
        body: &[u8],
        labels: &mut RequestLabels,
        warnings: &mut Vec<String>,
    ) -> Result<Response, ApiError> {
        let verb = Verb::of(&self.parts.method, request, &self.query)?;
        labels.verb = verb.as_str();
        let target = self.target(request)?;
        labels.resource.clone_from(&target.served.resource.plural);
        if request.subresource.as_deref() == Some("log") {
            return self.log(&target).await;
        }
        if !target.served.resource.verbs.contains(&verb) {
            return Err(request::method_not_allowed());
        }
        warnings.extend(target.served.version().deprecation_warning.clone());
        match verb {
            Verb::Get => self.get(&target).await,
            Verb::List => self.list(&target).await,
            Verb::Watch => self.watch(target).await,
            Verb::Create => self.create(&target, body, warnings).await,
            Verb::Update => self.update(&target, body, warnings).await,
            Verb::Patch => self.patch(&target, body, warnings).await,
            Verb::Delete => self.delete(&target, body, warnings).await,
            Verb::DeleteCollection => self.delete_collection(&target, body, warnings).await,
        }
    }

    fn target(&self, request: &ResourceRequest) -> Result<Target, ApiError> {
        let served = self
            .registry
            .find(&request.group, &request.version, &request.resource)
            .ok_or_else(no_such_resource)?;
        let resource = &served.resource;
        let name = request.name.clone().unwrap_or_default();
        let namespace = match (resource.scope, &request.namespace) {
            (Scope::Namespaced, Some(namespace)) => namespace.clone(),
            (Scope::Cluster | Scope::Namespaced, None) => String::new(),
            // The path of a Namespace itself reads like one inside a namespace.
            (Scope::Cluster, Some(_)) if resource.builtin == Some(Builtin::Namespace) => String::new(),
            (Scope::Cluster, Some(_)) => return Err(no_such_resource()),
        };
        if resource.scope == Scope::Namespaced && namespace.is_empty() && !name.is_empty() {
            return Err(no_such_resource());
        }
        let endpoint = match request.subresource.as_deref() {
            None => Endpoint::Main,
            Some("status") if served.version().has_status => Endpoint::Status,
            Some("finalize") if resource.builtin == Some(Builtin::Namespace) => Endpoint::Finalize,
            Some("log") if resource.builtin == Some(Builtin::Pod) => Endpoint::Main,
            Some(_) => {
                let target = Target {
                    served: served.clone(),
                    namespace,
                    name,
                    endpoint: Endpoint::Main,
                };
                return Err(ApiError::not_found(target.subject()));
            }
        };
        Ok(Target {
            served,
            namespace,
            name,
            endpoint,
        })
    }

    fn presenter(&self, target: &Target) -> Result<(Presenter, Encoding), ApiError> {
        let accepted = negotiate::resource(&self.parts.headers)?;
        let pretty =
            accepted.encoding == Encoding::Json && negotiate::wants_pretty(&self.query, &self.parts.headers);
        let encoding = if pretty {
            Encoding::PrettyJson
        } else {
            accepted.encoding
        };
        Ok((
            Presenter::new(
                target.served.clone(),
                accepted.shape,
                &self.query,
                self.core.defects,
            )?,
            encoding,
        ))
    }

    async fn get(&self, target: &Target) -> Result<Response, ApiError> {
        if let Some(version) = request::minimum_version(&self.query)? {
            self.core.reach(version).await?;
        }
        let (presenter, encoding) = self.presenter(target)?;
        let object = self.core.get(target)?;
        let bytes = presenter.stored(&object, encoding, self.core.clock.now())?;
        Ok(typed(StatusCode::OK, encoding.content_type(), bytes))
    }

    async fn list(&self, target: &Target) -> Result<Response, ApiError> {
        let options = ListOptions::from_query(&self.query)?;
        let (presenter, encoding) = self.presenter(target)?;
        let page = self.core.list(target, &options).await?;
        let bytes = presenter.page(&page, encoding, self.core.clock.now())?;
        Ok(typed(StatusCode::OK, encoding.content_type(), bytes))
    }

    async fn watch(&self, mut target: Target) -> Result<Response, ApiError> {
        let mut options = WatchOptions::from_query(&self.query)?;
        if !target.name.is_empty() {
            // A watch on one object is a watch on its collection for that name.
            let only = format!("metadata.name={}", target.name);
            if !options.field_selector.is_empty() {
                options.field_selector.push(',');
            }
            options.field_selector.push_str(&only);
            target.name.clear();
        }
        let shape = negotiate::watch(&self.parts.headers)?;
        let presenter = Presenter::new(target.served.clone(), shape, &self.query, self.core.defects)?;
        let stream = self.core.watch(&target, &options, presenter).await?;
        Ok(([(header::CONTENT_TYPE, "application/json")], stream).into_response())
    }

    async fn create(
        &self,
        target: &Target,
        body: &[u8],
        warnings: &mut Vec<String>,
    ) -> Result<Response, ApiError> {
        if !target.name.is_empty()
            || (target.namespace.is_empty() && target.served.resource.scope == Scope::Namespaced)
        {
            return Err(request::method_not_allowed());
        }
        let resource = &target.served.resource;
        let is_review = resource.builtin.is_some_and(Builtin::is_review);
        let options = WriteOptions::from_query(&self.query, request::Write::Create)?;
        let decoded = self.decode(target, body)?;
        if is_review {
            return self.review(target, &decoded.value);
        }
        let written = self
            .context(target, &options, &self.manager(&options))
            .create(decoded, warnings)
            .await?;
        self.written(target, &written)
    }

    fn review(&self, target: &Target, question: &Value) -> Result<Response, ApiError> {
        let Some(kind) = target.served.resource.builtin else {
            return Err(no_such_resource());
        };
        let answer = self.core.review(kind, &self.user, question);
        let (presenter, encoding) = self.presenter(target)?;
        let bytes = presenter.unsaved(&answer, encoding, self.core.clock.now())?;
        Ok(typed(StatusCode::CREATED, encoding.content_type(), bytes))
    }

    fn decode(&self, target: &Target, body: &[u8]) -> Result<body::Decoded, ApiError> {
        let resource = &target.served.resource;
        let version = &target.served.version().name;
        match negotiate::body_format(&self.parts.headers, !resource.is_custom())? {
            BodyFormat::Json => body::decode_object(body, body::Format::Json, resource, version),
            BodyFormat::Yaml => body::decode_object(body, body::Format::Yaml, resource, version),
            BodyFormat::Protobuf => {
                let value =
                    protobuf::decode(body).map_err(|error| ApiError::bad_request(error.to_string()))?;
                Ok(body::Decoded {
                    value,
                    duplicates: Vec::new(),
                })
            }
        }
    }

    async fn update(
        &self,
        target: &Target,
        body: &[u8],
        warnings: &mut Vec<String>,
    ) -> Result<Response, ApiError> {
        let options = WriteOptions::from_query(&self.query, request::Write::Update)?;
        let decoded = self.decode(target, body)?;
        let written = self
            .context(target, &options, &self.manager(&options))
            .update(decoded, warnings)
            .await?;
        self.written(target, &written)
    }

    async fn patch(
        &self,
        target: &Target,
        body: &[u8],
        warnings: &mut Vec<String>,
    ) -> Result<Response, ApiError> {
        let taken = if target.served.resource.is_custom() {
            negotiate::CUSTOM_PATCHES
        } else {
            negotiate::BUILTIN_PATCHES
        };
        let kind = negotiate::patch_type(&self.parts.headers, taken)?;
        let options = WriteOptions::from_query(&self.query, request::Write::Patch(kind))?;
        let written = self
            .context(target, &options, &self.manager(&options))
            .patch(kind, body, warnings)
            .await?;
        self.written(target, &written)
    }

    fn delete_options(&self, body: &[u8]) -> Result<DeleteOptions, ApiError> {
        if body.is_empty() {
            return DeleteOptions::from_query(&self.query);
        }
        let bad = |error: &dyn std::fmt::Display| ApiError::bad_request(error.to_string());
        let value = match negotiate::body_format(&self.parts.headers, true)? {
            BodyFormat::Json => {
                body::decode(body, body::Format::Json)
                    .map_err(|error| bad(&error))?
                    .value
            }
            BodyFormat::Yaml => {
                body::decode(body, body::Format::Yaml)
                    .map_err(|error| bad(&error))?
                    .value
            }
            BodyFormat::Protobuf => protobuf::decode(body).map_err(|error| bad(&error))?,
        };
        DeleteOptions::from_body(&value)
    }

    async fn delete(
        &self,
        target: &Target,
        body: &[u8],
        warnings: &mut Vec<String>,
    ) -> Result<Response, ApiError> {
        let options = self.delete_options(body)?;
        warn_of_orphans(target, &options, warnings);
        let deleted = self.core.delete(target, &options).await?;
        let (presenter, encoding) = self.presenter(target)?;
        let now = self.core.clock.now();
        let shows_object = matches!(
            target.served.resource.builtin,
            Some(
                Builtin::Pod | Builtin::PersistentVolumeClaim | Builtin::ServiceAccount | Builtin::Namespace
            )
        );
        let bytes = match &deleted {
            Deleted::Marked(object) => presenter.unsaved(object, encoding, now)?,
            Deleted::Gone(object) if shows_object => presenter.unsaved(object, encoding, now)?,
            Deleted::Gone(object) => encoding.encode(&success(target, object))?.into(),
        };
        Ok(typed(StatusCode::OK, encoding.content_type(), bytes))
    }

    /// Deletes every object that a list would show, and shows that list.
    async fn delete_collection(
        &self,
        target: &Target,
        body: &[u8],
        warnings: &mut Vec<String>,
    ) -> Result<Response, ApiError> {
        let options = self.delete_options(body)?;
        warn_of_orphans(target, &options, warnings);
        let list = ListOptions::from_query(&self.query)?;
        let (presenter, encoding) = self.presenter(target)?;
        let page = self.core.list(target, &list).await?;
        self.core.delete_page(target, &page, &options).await?;
        let bytes = presenter.page(&page, encoding, self.core.clock.now())?;
        Ok(typed(StatusCode::OK, encoding.content_type(), bytes))
    }

    async fn log(&self, target: &Target) -> Result<Response, ApiError> {
        if self.parts.method != http::Method::GET {
            return Err(request::method_not_allowed());
        }
        let request = self.log_request(target)?;
        self.core.get(target)?;
        let Some(logs) = &self.core.logs else {
            return Err(ApiError::new(
                Reason::ServiceUnavailable,
                "nothing runs pods here, so there are no logs",
            ));
        };
        let body = logs.read(request).await?;
        Ok(([(header::CONTENT_TYPE, "text/plain")], body).into_response())
    }

    fn log_request(&self, target: &Target) -> Result<LogRequest, ApiError> {
        let flag = |name: &str| self.query.flag(name).unwrap_or(false);
        let mut errors = Vec::new();
        let mut count = |name: &str, least: i64, why: &str| -> Result<Option<u64>, ApiError> {
            let given = self.query.integer(name)?;
            if let Some(value) = given.filter(|value| *value < least) {
                errors.push(FieldError::invalid(FieldPath::new(name), value, why));
            }
            Ok(given.and_then(|value| u64::try_from(value).ok()))
        };
        let request = LogRequest {
            namespace: target.namespace.clone(),
            pod: target.name.clone(),
            container: self.query.first("container").unwrap_or("").to_owned(),
            follow: flag("follow"),
            previous: flag("previous"),
            timestamps: flag("timestamps"),
            tail_lines: count("tailLines", 0, "must be greater than or equal to 0")?,
            limit_bytes: count("limitBytes", 1, "must be greater than 0")?,
            since_seconds: count("sinceSeconds", 1, "must be greater than 0")?,
        };
        if errors.is_empty() {
            return Ok(request);
        }
        let options = Subject {
            group: "",
            resource: "",
            kind: "PodLogOptions",
            name: &target.name,
        };
        Err(ApiError::invalid(options, &errors))
    }

    fn context<'c>(
        &'c self,
        target: &'c Target,
        options: &'c WriteOptions,
        manager: &'c str,
    ) -> WriteContext<'c> {
        WriteContext {
            core: self.core,
            target,
            options,
            manager,
        }
    }

    /// The field manager: the query parameter, else the first word of the user agent.
    fn manager(&self, options: &WriteOptions) -> String {
        if let Some(manager) = options
            .field_manager
            .as_deref()
            .filter(|manager| !manager.is_empty())
        {
            return manager.to_owned();
        }
        let agent = self
            .parts
            .headers
            .get(header::USER_AGENT)
            .and_then(|value| value.to_str().ok());
        request::manager_from_user_agent(agent.unwrap_or(""))
    }

    fn written(&self, target: &Target, written: &Written) -> Result<Response, ApiError> {
        let (presenter, encoding) = self.presenter(target)?;
        let now = self.core.clock.now();
        let status = if written.created {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        let bytes = match &written.object {
            Final::Stored(object) => presenter.stored(object, encoding, now)?,
            Final::Unsaved(object) => presenter.unsaved(object, encoding, now)?,
        };
        Ok(typed(status, encoding.content_type(), bytes))
    }
}
