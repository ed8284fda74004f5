//! The forges' APIs, played on 127.0.0.1. The answers have the fields that the published references of the forges show for
//! these requests (GitHub's REST API, GitLab's API v4, Bitbucket Cloud's API 2.0, Gitea's API v1); only what we read and some
//! of what surrounds it is there. What goes wrong is played as those references describe it: 401 for a token that has
//! expired, 403 and 429 with their headers for too many requests, 404, 422 and 5xx.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod app;
mod forges;
mod played;
mod refusals;
mod troubles;
mod trust;
