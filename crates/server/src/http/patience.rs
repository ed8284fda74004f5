//! Connections to clients that have to say what they want, and to read what they asked for. One that does neither for too long is
//! given up, so that it does not hold a place for ever.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use crate::metrics::{Loss, Metrics};

/// How long a client may leave everything unread that the buffers between it and us hold. A silent stream sends something every
/// 15 seconds, so that a client that is only slow has read some of it by then.
pub(super) const STALL_MAX: Duration = Duration::from_secs(30);

/// A stream of bytes whose other side has to read.
pub(super) struct Patient<S> {
    stream: S,
    /// How long it may still take until something is read; absent: nothing is waiting.
    stalled: Option<Pin<Box<Sleep>>>,
    given_up: bool,
    metrics: Arc<Metrics>,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, metrics: Arc<Metrics>) -> Self {
        Self {
            stream,
            stalled: None,
            given_up: false,
            metrics,
        }
    }

    /// Passes on what became of a write, unless it has waited for too long.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        if !self.given_up {
            let waiting = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALL_MAX)));
            if waiting.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.given_up = true;
            self.metrics.loss(Loss::SlowClient);
        }
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not read",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.bounded(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.bounded(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bounded(cx, outcome)
    }
}

/// A stream of bytes whose other side has to begin.
pub(super) struct Prompt<S> {
    stream: S,
    /// How long it may still take until something comes; absent: something came.
    silence: Option<Pin<Box<Sleep>>>,
}

impl<S> Prompt<S> {
    pub(super) fn new(stream: S, within: Duration) -> Self {
        Self {
            stream,
            silence: Some(Box::pin(sleep(within))),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prompt<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if outcome.is_ready() {
            self.silence = None;
        } else if let Some(silence) = &mut self.silence
            && silence.as_mut().poll(cx).is_ready()
        {
            let silent = io::Error::new(io::ErrorKind::TimedOut, "the client says nothing");
            return Poll::Ready(Err(silent));
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prompt<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_is_given_up_and_counted_once() {
        let metrics = Arc::new(Metrics::default());
        let (near, far) = duplex(16);
        let mut patient = Patient::new(near, Arc::clone(&metrics));
        let error = patient.write_all(&[0; 64]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        patient.write_all(&[0; 64]).await.expect_err("nobody reads");
        assert_eq!(metrics.losses_counted(Loss::SlowClient), 1);
        drop(far);
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_now_and_then_is_waited_for() {
        let metrics = Arc::new(Metrics::default());
        let (near, mut far) = duplex(16);
        let mut patient = Patient::new(near, Arc::clone(&metrics));
        let reading = async {
            let mut taken = [0; 16];
            for _ in 0..4 {
                // Slow, but each time before the patience ends.
                tokio::time::sleep(STALL_MAX / 2).await;
                far.read_exact(&mut taken).await.expect("some of it");
            }
        };
        let (written, ()) = tokio::join!(patient.write_all(&[0; 64]), reading);
        written.expect("all of it");
        assert_eq!(metrics.losses_counted(Loss::SlowClient), 0);
    }
}
