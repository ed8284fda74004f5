//! The forges' APIs, played on 127.0.0.1. A played forge refuses to say with success what does not fit the published description of its
//! API (GitHub's REST API, GitLab's API v4, Bitbucket Cloud's API 2.0, Gitea's API v1), of which `schemas` has what concerns the
//! answers that are read. What goes wrong is played as the references of the forges describe it: 401 for a token that has
//! expired, 403 and 429 with their headers for too many requests, 404, 422 and 5xx.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod app;
mod forges;
mod played;
mod refusals;
mod said;
mod schemas;
mod troubles;
mod trust;
