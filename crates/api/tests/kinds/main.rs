//! Tests of the kinds as the API server and other programs see them: their definitions, their rules, their objects.

mod contract;
mod definitions;
mod objects;
mod rules;
mod support;
