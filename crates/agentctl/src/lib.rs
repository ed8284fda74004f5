//! The person at the terminal: submits, watches, explains, cancels, approves.
