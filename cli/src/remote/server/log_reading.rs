//! Reading what pods wrote, for clients that follow it or not.

use aegis_link::frame::Kind;
use aegis_link::phase::PodPhase;

use super::logs::Next;
use super::state::{ControlServer, Job, OUT_BYTES_ENOUGH};
use crate::relay::pod_link::PodLink;

impl ControlServer {
    pub(super) fn show_logs(
        &mut self,
        number: u64,
        follows: bool,
        (pod, last): (Option<&str>, Option<u64>),
    ) -> Result<(), String> {
        let pod = pod.map(|name| self.pod(name)).transpose()?;
        let position = self.logs.position_of_last(pod, last.unwrap_or(u64::MAX));
        self.begin(number, Job::Logs { pod, follows, position })
    }

    pub(super) fn go_on_with_logs(&mut self, number: u64, links: &[PodLink]) {
        let is_over = |pod: usize| links[pod].is_flushed() && links[pod].phase() != PodPhase::Waiting;
        let Some(client) = self.clients.get_mut(&number) else { return };
        let mut job = std::mem::replace(&mut client.job, Job::Nothing);
        let Job::Logs { pod, follows, position } = &mut job else { return };
        while client.stream.pending_bytes() < OUT_BYTES_ENOUGH && !client.is_over {
            let (kind, contents) = match self.logs.read(*pod, position) {
                Next::Line(writer, line) => {
                    let kind = if line.is_error { Kind::Errors } else { Kind::Output };
                    let mark = if pod.is_none() { self.pods[writer].mark.as_bytes() } else { b"" };
                    (kind, [mark, &line.text].concat())
                }
                Next::Lost(writer) => {
                    let text = format!("aegis: {}: lines are missing here\n", self.pods[writer].name);
                    (Kind::Errors, text.into_bytes())
                }
                Next::Nothing => {
                    let ends = match *pod {
                        Some(pod) => is_over(pod),
                        None => (0..self.pods.len()).all(is_over),
                    };
                    if ends || !*follows {
                        client.end(0, "");
                        return;
                    }
                    break;
                }
            };
            client.send(kind, &contents);
        }
        client.job = job;
    }
}
