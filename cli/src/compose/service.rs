//! One service of a compose file becomes a pod.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aegis_launch::images::source::{ImageSource, Reference, parse_source};
use aegis_launch::machine::mounts::Volume;
use aegis_link::pods::{POD_NAME_BYTES_MAX, is_name};

use crate::compose::Reader;
use crate::compose::interpolate::read_variables;
use crate::compose::yaml::{Node, Value, Wrong};
use crate::options::groups::MEMORY_DEFAULT;
use crate::options::health::HealthCheck;
use crate::options::image::PullChoice;
use crate::options::network::{NetworkChoice, parse_host_entry, parse_hostname, parse_name_server, parse_publications};
use crate::options::values::{MEMORY_BYTES_MIN, parse_memory, parse_signal, parse_temporary};
use crate::remote::server::restart::Restart;
use crate::verb::up_dependencies::{Condition, Written};
use crate::verb::up_file::{PodEntry, plain_options};

/// `cpu_shares` of a service that says nothing: what a share is compared with.
const SHARES_DEFAULT: u64 = 1024;
/// Longest file of variables.
const VARIABLES_BYTES_MAX: u64 = 1 << 20;
/// Keys that mean a container with more of the host than a machine gives away.
const REFUSED: [&str; 4] = ["devices", "volumes_from", "pid", "userns_mode"];
/// Keys that ask for nothing where they are false.
const SWITCHES: [&str; 3] = ["tty", "stdin_open", "init"];

type Result<T> = std::result::Result<T, Wrong>;

pub(super) struct Service<'a> {
    reader: &'a mut Reader,
    name: String,
    line: usize,
    pod: PodEntry,
    command: Option<Vec<OsString>>,
    /// Variables of files, which those of `environment` win over.
    of_files: Vec<OsString>,
    dependencies: Vec<Written>,
}

impl<'a> Service<'a> {
    pub(super) fn new(reader: &'a mut Reader, name: &str, line: usize) -> Self {
        let memory = parse_memory(MEMORY_DEFAULT).unwrap_or(MEMORY_BYTES_MIN);
        let pod = PodEntry {
            name: name.into(),
            words: Vec::new(),
            options: plain_options(memory),
            memory_limit: memory,
            tickets: SHARES_DEFAULT,
            payer: None,
            restart: Restart::NO,
            dependencies: Vec::new(),
        };
        let dependencies = Vec::new();
        Self { reader, name: name.into(), line, pod, command: None, of_files: Vec::new(), dependencies }
    }

    /// Reads the service; nothing if it belongs to a profile that was not asked for.
    pub(super) fn read(mut self, node: &Node) -> Result<Option<(PodEntry, Vec<Written>)>> {
        if !is_name(&self.name) {
            let why = format!("a service's name is 1 to {POD_NAME_BYTES_MAX} letters, digits, - and _");
            return Err((self.line, format!("{}: {why}", self.name)));
        }
        let Value::Map(keys) = &node.value else { return Err((node.line, format!("{}: no map", self.name))) };
        if let Some((_, profiles)) = keys.iter().find(|(key, _)| key == "profiles")
            && !self.is_wanted(profiles)?
        {
            return Ok(None);
        }
        // A service with both is not built here, but has its image.
        let has_image = keys.iter().any(|(key, _)| key == "image");
        for (key, value) in keys {
            self.key(key, value, has_image)?;
        }
        if self.pod.options.image.image.is_none() {
            return Err((self.line, format!("{}: no image", self.name)));
        }
        self.pod.words = self.command.take().unwrap_or_default();
        let given = std::mem::take(&mut self.pod.options.environment);
        self.pod.options.environment = self.of_files.into_iter().chain(given).collect();
        Ok(Some((self.pod, self.dependencies)))
    }

    fn is_wanted(&self, profiles: &Node) -> Result<bool> {
        let wanted = self.reader.variables.get("COMPOSE_PROFILES").unwrap_or_default();
        let wanted: Vec<&str> = wanted.split(',').map(str::trim).collect();
        Ok(texts("profiles", profiles)?.iter().any(|profile| wanted.contains(&profile.as_str())))
    }

    fn key(&mut self, key: &str, node: &Node, has_image: bool) -> Result<()> {
        let line = node.line;
        let at = |why: String| (line, format!("{key}: {why}"));
        let options = &mut self.pod.options;
        match key {
            "image" => self.pod.options.image.image = Some(self.source(&text(key, node)?).map_err(at)?),
            "command" if node.is_null() => {}
            "command" => self.command = Some(words(key, node)?),
            "entrypoint" if node.is_null() => {}
            "entrypoint" => {
                let list: Vec<String> =
                    words(key, node)?.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
                let is_none = list.is_empty() || list == [""];
                let json = serde_json::to_string(&list).map_err(|why| at(why.to_string()))?;
                options.image.entrypoint = Some(if is_none { String::new() } else { json });
            }
            "environment" => self.pod.options.environment = self.variables(key, node)?,
            "env_file" => self.of_files = self.files(key, node)?,
            "ports" => self.ports(node)?,
            "volumes" => self.volumes(node)?,
            "user" => options.image.user = Some(text(key, node)?),
            "working_dir" => options.working_directory = Some(text(key, node)?.into()),
            "hostname" => options.network.hostname = Some(parse_hostname(&text(key, node)?).map_err(at)?),
            "mem_limit" => self.memory(key, node)?,
            "cpu_shares" => {
                let shares = text(key, node)?.parse().ok().filter(|shares| (1..=1 << 31).contains(shares));
                self.pod.tickets = shares.ok_or_else(|| at("a number from 1 is wanted".into()))?;
            }
            "restart" => self.pod.restart = restart(&text(key, node)?).map_err(at)?,
            "network_mode" if text(key, node)? == "none" => options.network.network = Some(NetworkChoice::None),
            "extra_hosts" => {
                for entry in pairs(key, node, [':', '='])? {
                    let entry = parse_host_entry(&entry).map_err(|why| at(why.to_string()))?;
                    options.network.add_host.push(entry);
                }
            }
            "dns" => {
                for server in texts(key, node)? {
                    options.network.dns.push(parse_name_server(&server).map_err(|why| at(why.to_string()))?);
                }
            }
            "read_only" => options.read_only = boolean(key, node)?,
            "tmpfs" => {
                for place in texts(key, node)? {
                    options.temporaries.push(parse_temporary(&place).map_err(at)?);
                }
            }
            "stop_signal" => options.image.stop_signal = Some(parse_signal(&text(key, node)?).map_err(at)?),
            "healthcheck" => self.healthcheck(node)?,
            "deploy" => self.deploy(node)?,
            "depends_on" => self.dependencies(node)?,
            "build" if !has_image => {
                let text = "not built here: aegis images build -t NAME DIR, then image: NAME";
                return Err(at(text.into()));
            }
            "privileged" if !boolean(key, node)? => {}
            key if REFUSED.contains(&key) && is_empty(node) => {}
            key if key == "privileged" || REFUSED.contains(&key) => {
                return Err(at("a machine does not give the host away".into()));
            }
            "pull_policy" => self.pull(key, node)?,
            "profiles" => {}
            key if SWITCHES.contains(&key) && !boolean(key, node)? => {}
            key if key.starts_with("x-") => {}
            key => self.ignore(line, key),
        }
        Ok(())
    }

    fn healthcheck(&mut self, node: &Node) -> Result<()> {
        let Value::Map(map) = &node.value else { return Err((node.line, "healthcheck: a map is wanted".into())) };
        self.ignore_others("healthcheck", map, &["test", "interval", "timeout", "start_period", "retries", "disable"]);
        let of = |name: &str| map.iter().find(|(key, _)| key == name).map(|(_, node)| node);
        let options = &mut self.pod.options.image;
        options.health.no_healthcheck = of("disable").map_or(Ok(false), |it| boolean("healthcheck: disable", it))?;
        for (name, place) in [
            ("interval", &mut options.health.health_interval),
            ("timeout", &mut options.health.health_timeout),
            ("start_period", &mut options.health.health_start_period),
        ] {
            if let Some(node) = of(name) {
                *place = Some(
                    duration(&text(name, node)?).map_err(|why| (node.line, format!("healthcheck: {name}: {why}")))?,
                );
            }
        }
        if let Some(node) = of("retries") {
            let retries = text("retries", node)?.parse().ok().filter(|retries| *retries > 0);
            let retries =
                retries.ok_or_else(|| (node.line, "healthcheck: retries: a number from 1 is wanted".to_owned()))?;
            options.health.health_retries = Some(retries);
        }
        let Some(test) = of("test") else { return Ok(()) };
        let words = match &test.value {
            Value::List(_) => texts("healthcheck: test", test)?,
            _ => vec!["CMD-SHELL".to_owned(), text("healthcheck: test", test)?],
        };
        match HealthCheck::of_test(&words).map_err(|why| (test.line, format!("healthcheck: test: {why}")))? {
            Some(check) => options.health_check = Some(check),
            None => options.health.no_healthcheck = true,
        }
        Ok(())
    }

    fn ignore(&mut self, line: usize, key: &str) {
        let key = format!("services.{}.{key}", self.name);
        self.reader.ignored(line, &key);
    }

    fn pull(&mut self, key: &str, node: &Node) -> Result<()> {
        self.pod.options.image.pull = match text(key, node)?.as_str() {
            "always" => PullChoice::Always,
            "never" => PullChoice::Never,
            "missing" | "if_not_present" => PullChoice::Missing,
            other => {
                self.ignore(node.line, &format!("{key}: {other}"));
                PullChoice::Missing
            }
        };
        Ok(())
    }

    /// Names the keys of an entry that are not known.
    fn ignore_others(&mut self, key: &str, map: &[(String, Node)], known: &[&str]) {
        for (name, node) in map.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
            self.ignore(node.line, &format!("{key}.{name}"));
        }
    }

    /// An image by a transport, or by a name that is looked for here first and then in a registry.
    fn source(&self, text: &str) -> std::result::Result<ImageSource, String> {
        let whole = |path: PathBuf| self.reader.folder.join(path);
        let named = |text: &str| Reference::parse(text).map(ImageSource::Registry);
        let has_transport = ["docker-archive:", "oci:", "oci-archive:", "containers-storage:", "docker://"];
        let source = if has_transport.iter().any(|it| text.starts_with(it)) {
            parse_source(text.into()).map(|source| match source {
                ImageSource::DockerArchive(path, name) => ImageSource::DockerArchive(whole(path), name),
                ImageSource::Layout(path, name) => ImageSource::Layout(whole(path), name),
                ImageSource::LayoutArchive(path, name) => ImageSource::LayoutArchive(whole(path), name),
                other => other,
            })
        } else {
            named(text)
        };
        source.map_err(|error| error.to_string())
    }

    fn variables(&self, key: &str, node: &Node) -> Result<Vec<OsString>> {
        let of_host = |name: &str| self.reader.variables.get(name).map(|value| format!("{name}={value}"));
        let all = match &node.value {
            Value::Map(map) => map
                .iter()
                .filter_map(|(name, value)| match &value.value {
                    _ if value.is_null() => of_host(name).map(Ok),
                    Value::Scalar(text, _) => Some(Ok(format!("{name}={text}"))),
                    _ => Some(Err((value.line, format!("{key}: {name}: text is wanted")))),
                })
                .collect::<Result<Vec<_>>>()?,
            _ => {
                let one = |text: &String| if text.contains('=') { Some(text.clone()) } else { of_host(text) };
                texts(key, node)?.iter().filter_map(one).collect()
            }
        };
        Ok(all.into_iter().map(OsString::from).collect())
    }

    fn files(&mut self, key: &str, node: &Node) -> Result<Vec<OsString>> {
        let mut found = Vec::new();
        let one = std::slice::from_ref(node);
        let list = if let Value::List(list) = &node.value { list } else { one };
        for entry in list {
            let (path, is_required) = match &entry.value {
                Value::Map(map) => {
                    let of = |name: &str| map.iter().find(|(key, _)| key == name).map(|(_, node)| node);
                    let path = of("path").ok_or_else(|| (entry.line, format!("{key}: path is missing")))?;
                    let is_required = of("required").map_or(Ok(true), |it| boolean(key, it))?;
                    self.ignore_others(key, map, &["path", "required"]);
                    (text(key, path)?, is_required)
                }
                _ => (text(key, entry)?, true),
            };
            let wrong = |why: String| (entry.line, format!("{key}: {path}: {why}"));
            let whole = self.reader.folder.join(&path);
            if !is_required && !whole.exists() {
                continue;
            }
            let length = std::fs::metadata(&whole).map_err(|error| wrong(error.to_string()))?.len();
            if length > VARIABLES_BYTES_MAX {
                return Err(wrong("more than 1 MiB".into()));
            }
            let read = std::fs::read_to_string(&whole).map_err(|error| wrong(error.to_string()))?;
            for (name, value) in read_variables(&read).map_err(wrong)? {
                let value = value.or_else(|| self.reader.variables.get(&name).map(str::to_owned));
                found.extend(value.map(|value| OsString::from(format!("{name}={value}"))));
            }
        }
        Ok(found)
    }

    fn ports(&mut self, node: &Node) -> Result<()> {
        let Value::List(list) = &node.value else { return Err((node.line, "ports: a list is wanted".into())) };
        for entry in list {
            let written = match &entry.value {
                Value::Map(map) => {
                    let of = |name: &str| {
                        map.iter().find(|(key, _)| key == name).map(|(_, node)| text("ports", node)).transpose()
                    };
                    let target = of("target")?.ok_or_else(|| (entry.line, "ports: target is missing".to_owned()))?;
                    let published = of("published")?.unwrap_or_else(|| "0".into());
                    let address = of("host_ip")?.map(|address| format!("{address}:")).unwrap_or_default();
                    let protocol = of("protocol")?.map(|protocol| format!("/{protocol}")).unwrap_or_default();
                    self.ignore_others("ports", map, &["target", "published", "host_ip", "protocol"]);
                    format!("{address}{published}:{target}{protocol}")
                }
                _ => {
                    let text = text("ports", entry)?;
                    if text.contains(':') { text } else { format!("0:{text}") }
                }
            };
            let range = parse_publications(&written).map_err(|why| (entry.line, format!("ports: {written}: {why}")))?;
            self.pod.options.network.add_publication(range);
        }
        Ok(())
    }

    fn volumes(&mut self, node: &Node) -> Result<()> {
        let Value::List(list) = &node.value else { return Err((node.line, "volumes: a list is wanted".into())) };
        for entry in list {
            let (source, guest, is_read_only) = match &entry.value {
                Value::Map(map) => {
                    let node = |name: &str| map.iter().find(|(key, _)| key == name).map(|(_, node)| node);
                    let of = |name: &str| node(name).map(|node| text("volumes", node)).transpose();
                    let target = of("target")?.ok_or_else(|| (entry.line, "volumes: target is missing".to_owned()))?;
                    let is_read_only = node("read_only").map_or(Ok(false), |it| boolean("volumes: read_only", it))?;
                    let (kind, source) = (of("type")?, of("source")?);
                    self.ignore_others("volumes", map, &["target", "read_only", "type", "source"]);
                    match kind.as_deref() {
                        Some("tmpfs") => {
                            let place =
                                parse_temporary(&target).map_err(|why| (entry.line, format!("volumes: {why}")))?;
                            self.pod.options.temporaries.push(place);
                            continue;
                        }
                        None | Some("bind" | "volume") => (source, target, is_read_only),
                        Some(kind) => return Err((entry.line, format!("volumes: type {kind}: bind, volume or tmpfs"))),
                    }
                }
                _ => volume(&text("volumes", entry)?).map_err(|why| (entry.line, why))?,
            };
            // Without a source it is memory, as everything is that a program writes.
            let Some(source) = source else { continue };
            let host = self.volume_source(&source, entry.line)?;
            let is_path = guest.starts_with('/') && guest != "/" && !guest.split('/').any(|name| name == "..");
            if !is_path {
                return Err((entry.line, format!("volumes: {guest}: a path below / is wanted")));
            }
            self.pod.options.volumes.push(Volume { host, guest: guest.into(), is_read_only });
        }
        Ok(())
    }

    /// A path of the host, or the directory of a named volume; to be made if it is not there.
    fn volume_source(&mut self, source: &str, line: usize) -> Result<PathBuf> {
        let path = if source.starts_with(['/', '.']) {
            self.reader.folder.join(source)
        } else if let Some(rest) = source.strip_prefix("~/") {
            PathBuf::from(self.reader.variables.get("HOME").unwrap_or("/")).join(rest)
        } else {
            let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
            if source.starts_with(['-', '_']) || !source.bytes().all(is_byte) {
                return Err((line, format!("volumes: {source}: a volume's name is letters, digits, _ . and -")));
            }
            let project = self.reader.project().map_err(|why| (line, why))?;
            self.volumes_folder().join(format!("{project}_{source}"))
        };
        if !path.exists() {
            self.reader.directories.push(path.clone());
        }
        Ok(path)
    }

    /// `$XDG_DATA_HOME/aegis/volumes`, or below `~/.local/share`.
    fn volumes_folder(&self) -> PathBuf {
        let set = |name: &str| self.reader.variables.get(name).filter(|path| path.starts_with('/'));
        let data = set("XDG_DATA_HOME").map(PathBuf::from);
        let data = data.or_else(|| set("HOME").map(|home| Path::new(home).join(".local/share")));
        data.unwrap_or_else(|| self.reader.folder.clone()).join("aegis/volumes")
    }

    fn memory(&mut self, key: &str, node: &Node) -> Result<()> {
        let written = text(key, node)?;
        let memory = parse_memory(&written).map_err(|why| (node.line, format!("{key}: {why}")))?;
        (self.pod.options.memory, self.pod.memory_limit) = (memory, memory);
        Ok(())
    }

    fn deploy(&mut self, node: &Node) -> Result<()> {
        let Value::Map(keys) = &node.value else { return Err((node.line, "deploy: a map is wanted".into())) };
        for (key, value) in keys {
            let Value::Map(resources) = &value.value else {
                self.ignore(value.line, &format!("deploy.{key}"));
                continue;
            };
            if key != "resources" {
                self.ignore(value.line, &format!("deploy.{key}"));
                continue;
            }
            self.ignore_others("deploy.resources", resources, &["limits"]);
            for (_, limits) in resources.iter().filter(|(key, _)| key == "limits") {
                let Value::Map(limits) = &limits.value else {
                    return Err((limits.line, "deploy.resources.limits: a map is wanted".into()));
                };
                self.ignore_others("deploy.resources.limits", limits, &["memory"]);
                for (_, node) in limits.iter().filter(|(key, _)| key == "memory") {
                    self.memory("deploy.resources.limits.memory", node)?;
                }
            }
        }
        Ok(())
    }

    /// What it waits for: a list of services, or a map of them with conditions.
    fn dependencies(&mut self, node: &Node) -> Result<()> {
        let one = |name: &str, at| Written { name: name.into(), condition: Condition::Started, is_required: true, at };
        let Value::Map(map) = &node.value else {
            self.dependencies = texts("depends_on", node)?.iter().map(|name| one(name, node.line)).collect();
            return Ok(());
        };
        for (name, entry) in map {
            let mut found = one(name, entry.line);
            let none = Vec::new();
            let keys = if let Value::Map(keys) = &entry.value { keys } else { &none };
            for (key, value) in keys {
                let at = |why: String| (value.line, format!("depends_on: {name}: {key}: {why}"));
                match key.as_str() {
                    "condition" => found.condition = Condition::parse(&text(key, value)?).map_err(at)?,
                    "required" => found.is_required = boolean("depends_on: required", value)?,
                    _ => self.ignore(value.line, &format!("depends_on.{name}.{key}")),
                }
            }
            self.dependencies.push(found);
        }
        Ok(())
    }
}

fn restart(text: &str) -> std::result::Result<Restart, String> {
    match text {
        "unless-stopped" => Restart::parse("always"),
        text => Restart::parse(text),
    }
}

/// A time as compose writes it: `1h2m3s`, `1.5s`, `500ms`.
fn duration(text: &str) -> std::result::Result<Duration, String> {
    let wrong = || format!("{text}: a time such as 1m30s is wanted");
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        let letters = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |length| digits + length);
        let unit = match &rest[digits..letters] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" => 1e-6,
            "ns" => 1e-9,
            _ => return Err(wrong()),
        };
        seconds += number * unit;
        rest = &rest[letters..];
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

fn text(key: &str, node: &Node) -> Result<String> {
    match &node.value {
        Value::Scalar(text, _) => Ok(text.clone()),
        _ => Err((node.line, format!("{key}: text is wanted"))),
    }
}

/// Whether a key asks for nothing.
fn is_empty(node: &Node) -> bool {
    node.is_null() || matches!(&node.value, Value::List(list) if list.is_empty())
}

/// Yes or no, as YAML's core schema writes it: what is neither could be meant as either.
fn boolean(key: &str, node: &Node) -> Result<bool> {
    match text(key, node)?.as_str() {
        "true" | "True" | "TRUE" => Ok(true),
        "false" | "False" | "FALSE" => Ok(false),
        other => Err((node.line, format!("{key}: {other}: true or false is wanted"))),
    }
}

/// `[SOURCE:]GUEST[:MODES]`: source, guest's path, and whether it is read only.
fn volume(text: &str) -> std::result::Result<(Option<String>, String, bool), String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, guest, modes) = match parts[..] {
        [guest] => (None, guest, ""),
        [source, guest] => (Some(source), guest, ""),
        [source, guest, modes] => (Some(source), guest, modes),
        _ => return Err(format!("volumes: {text}: SOURCE:GUEST or SOURCE:GUEST:ro is wanted")),
    };
    // Those that are not ro say what a directory of this host is in any case, or how labels of its kernel are set.
    let known = ["", "ro", "rw", "z", "Z", "cached", "delegated", "consistent", "nocopy"];
    if let Some(mode) = modes.split(',').find(|mode| !known.contains(mode)) {
        return Err(format!("volumes: {text}: {mode}: ro or rw is wanted"));
    }
    Ok((source.map(str::to_owned), guest.to_owned(), modes.split(',').any(|mode| mode == "ro")))
}

/// A list of texts, or one.
fn texts(key: &str, node: &Node) -> Result<Vec<String>> {
    match &node.value {
        Value::List(list) => list.iter().map(|it| text(key, it)).collect(),
        _ => text(key, node).map(|text| vec![text]),
    }
}

/// A list of words, or a line that a shell would take apart.
fn words(key: &str, node: &Node) -> Result<Vec<OsString>> {
    let all = match &node.value {
        Value::List(_) => texts(key, node)?,
        _ => {
            let line = text(key, node)?;
            shlex::split(&line).ok_or_else(|| (node.line, format!("{key}: a quote is not closed")))?
        }
    };
    Ok(all.into_iter().map(OsString::from).collect())
}

/// `NAME:VALUE`s: a list of them with one of these between, or a map.
fn pairs(key: &str, node: &Node, between: [char; 2]) -> Result<Vec<String>> {
    match &node.value {
        Value::Map(map) => map.iter().map(|(name, it)| Ok(format!("{name}:{}", text(key, it)?))).collect(),
        _ => Ok(texts(key, node)?.into_iter().map(|text| text.replacen(between[1], ":", 1)).collect()),
    }
}
