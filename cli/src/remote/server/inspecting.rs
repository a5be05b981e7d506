//! `aegis inspect`: how a pod was started, and where it is now, without asking anybody in the machine.

use aegis_link::config::{Config, Flags, HostMountFlags};
use aegis_link::frame::{Kind, SOCKET_BYTES_MAX};
use aegis_link::phase::PodPhase;
use serde_json::{Value, json};

use super::events::status_of;
use super::state::ControlServer;
use crate::relay::pod_link::PodLink;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a program was started with; what is secret of it (the seed of its chance) is not told.
fn started(config: &Config) -> Value {
    let texts = |list: &[Vec<u8>]| list.iter().map(|it| text(it)).collect::<Vec<_>>();
    let sealed = HostMountFlags::READ_ONLY | HostMountFlags::LAYER;
    let mount = |mount: &aegis_link::config::HostMount| {
        json!({
            "path": text(&mount.path),
            "read_only": mount.flags.intersects(sealed),
        })
    };
    json!({
        "program": text(&config.program),
        "args": texts(&config.arguments),
        "env": texts(&config.environment),
        "workdir": text(&config.working_directory),
        "user": { "uid": config.uid, "gid": config.gid, "groups": config.groups },
        "hostname": text(&config.hostname),
        "memory_bytes": config.memory_limit_bytes,
        "read_only": config.flags.contains(Flags::READ_ONLY_ROOT),
        "tmpfs": config.temporaries.iter().map(|it| text(&it.path)).collect::<Vec<_>>(),
        "mounts": config.mounts.iter().map(mount).collect::<Vec<_>>(),
        "has_network": config.network.is_some(),
    })
}

impl ControlServer {
    pub(super) fn inspect(&mut self, number: u64, pod: Option<&str>, links: &[PodLink]) -> Result<(), String> {
        let pods = match pod {
            Some(name) => vec![self.pod(name)?],
            None => (0..self.pods.len()).collect(),
        };
        let shown: Vec<Value> = pods.into_iter().map(|pod| self.inspected(pod, &links[pod])).collect();
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        for contents in Value::from(shown).to_string().as_bytes().chunks(SOCKET_BYTES_MAX) {
            client.send(Kind::Output, contents);
        }
        client.end(0, "");
        Ok(())
    }

    fn inspected(&self, number: usize, link: &PodLink) -> Value {
        let pod = &self.pods[number];
        let phase = link.phase();
        let is_over = matches!(phase, PodPhase::Waiting | PodPhase::Ended | PodPhase::Lost);
        json!({
            "machine": self.machine_name(),
            "pod": pod.name,
            "state": phase.name(),
            "status": is_over.then(|| status_of(link)),
            "crashed": phase == PodPhase::Lost && !pod.is_taken_apart,
            "health": pod.watch.as_ref().map(|watch| watch.health.name()),
            "restarts": link.restart_count,
            "running_s": (!is_over).then(|| pod.started.elapsed().as_secs()),
            "ports": pod.ports,
            "currency": self.payers.of_pod(number),
            "stop_signal": pod.stop_signal,
            "labels": pod.labels,
            "started": self.channels.get(number).map(|channel| started(&channel.config)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::started;
    use aegis_link::config::{Config, Flags, Temporary};

    #[test]
    fn what_was_started_is_told_and_its_seed_is_not() {
        let config = Config {
            program: b"/bin/x".to_vec(),
            arguments: vec![b"x".to_vec(), b"\xff".to_vec()],
            random_seed: [7; 32],
            flags: Flags::READ_ONLY_ROOT,
            temporaries: vec![Temporary::new(b"/run")],
            ..Config::default()
        };
        let value = started(&config);
        assert_eq!((&value["program"], &value["args"][1]), (&"/bin/x".into(), &"\u{fffd}".into()));
        assert_eq!((&value["read_only"], &value["tmpfs"][0]), (&true.into(), &"/run".into()));
        assert!(!value.to_string().contains("seed") && !value.to_string().contains("7,7"));
    }
}
