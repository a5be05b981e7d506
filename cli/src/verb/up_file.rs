//! The file of `aegis up`: which pods a machine has, in TOML.
//!
//! Pure: text in, pods out. Whatever is not understood is an
//! error with its line: an unknown table or key, a value of another kind or out of range, a currency that is not there
//! or funds itself. Paths of the host are made absolute against the file's folder; nothing is looked up.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use aegis_abi::call::TICKET_AMOUNT_MAX;
use aegis_launch::images::source::parse_source;
use aegis_launch::machine::mounts::parse_volume;
use aegis_launch::root::parse_with;
use aegis_link::drivers::Fault;
use aegis_link::pods::{POD_COUNT_MAX, POD_NAME_BYTES_MAX, is_name};
use toml_span::Value;
use toml_span::value::{Key, Table};

use crate::options::disks::{DiskOptions, PoolDisk, parse_disk, parse_order};
use crate::options::drivers::parse_driver;
use crate::options::groups::{CPU_COUNT_MAX, MEMORY_DEFAULT, PodOptions};
use crate::options::image::ImageOptions;
use crate::options::network::{
    NetworkChoice, NetworkOptions, parse_address, parse_choice, parse_hardware_address, parse_host_entry,
    parse_hostname, parse_name_server, parse_publications, parse_router,
};
use crate::options::values::{
    MEMORY_BYTES_MAX, MEMORY_BYTES_MIN, parse_memory, parse_memory_range, parse_seconds, parse_signal, parse_temporary,
};
use crate::options::view::ViewOptions;
use crate::remote::server::restart::Restart;
use crate::start::program::absolute;
use crate::verb::up_currencies::{self, BASE, CurrencyEntry, Use, Written};
use crate::verb::up_dependencies::{self, Dependency};
use crate::verb::up_pool;

/// Tickets of a pod or currency that says nothing.
pub(crate) const TICKETS_DEFAULT: u64 = aegis_abi::call::TICKET_AMOUNT_DEFAULT;
/// Longest slice in milliseconds.
const SLICE_MS_MAX: i64 = 100;

/// What a pod's table may have.
const POD_KEYS: &str = "program, args, image, user, root, pack, system, volumes, with, env, workdir, memory, \
                        tickets, currency, restart, ports, network, host_access, dns, hosts, ip, gateway, mac, \
                        hostname, pcap, drivers, disk, io_order, read_only, tmpfs, stop_signal, \
                        health, health_interval, depends_on";

/// A machine and its pods.
#[derive(Debug)]
pub(crate) struct UpFile {
    /// Processors.
    pub(crate) cpus: u8,
    /// Memory of the whole machine; by default what the pods need.
    pub(crate) memory: Option<u64>,
    /// Length of a slice.
    pub(crate) slice_ms: Option<u8>,
    /// Pods drive their devices themselves, unguarded.
    pub(crate) trusts_devices: bool,
    /// The pods, in the file's order.
    pub(crate) pods: Vec<PodEntry>,
    /// The currencies; a payer stands before what it pays for.
    pub(crate) currencies: Vec<CurrencyEntry>,
    /// The image of which pods have extents.
    pub(crate) pool: Option<PathBuf>,
    /// For tests: what its driver does wrong.
    pub(crate) pool_fault: Option<Fault>,
}

impl UpFile {
    /// Takes in what each pod waits for; where what is wrong stands, and what it is.
    pub(crate) fn settle(
        &mut self,
        written: &[Vec<up_dependencies::Written>],
    ) -> std::result::Result<(), (usize, String)> {
        let names: Vec<&str> = self.pods.iter().map(|pod| pod.name.as_str()).collect();
        let found = up_dependencies::settle(&names, written)?;
        self.pods.iter_mut().zip(found).for_each(|(pod, found)| pod.dependencies = found);
        Ok(())
    }
}

/// A pod.
#[derive(Debug)]
pub(crate) struct PodEntry {
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) words: Vec<OsString>,
    /// What belongs to it.
    pub(crate) options: PodOptions,
    /// Memory that its programs may have at most, if nobody else wants it.
    pub(crate) memory_limit: u64,
    /// Amount of its ticket.
    pub(crate) tickets: u64,
    /// The currency that this ticket is in, by its place among all; `None`: the base.
    pub(crate) payer: Option<usize>,
    /// Whether it is started again when it has ended.
    pub(crate) restart: Restart,
    /// What it waits for before it is started.
    pub(crate) dependencies: Vec<Dependency>,
}

impl PodEntry {
    /// Extents of the pool that it has.
    pub(crate) fn extent_count(&self) -> usize {
        self.options.disks.extents.len()
    }
}

/// What is wrong with a file, and in which line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileError {
    line: usize,
    text: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: {}", self.line, self.text)
    }
}

type Result<T> = std::result::Result<T, FileError>;

/// Reads a file's text. Relative paths of the host are relative to `folder`.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn parse(text: &str, folder: &Path) -> Result<UpFile> {
    let reader = Reader { text, folder };
    let document = toml_span::parse(text).map_err(|error| reader.error(error.span.start, &error))?;
    let mut file = UpFile {
        cpus: 1,
        memory: None,
        slice_ms: None,
        trusts_devices: false,
        pods: Vec::new(),
        currencies: Vec::new(),
        pool: None,
        pool_fault: None,
    };
    let (mut written, mut uses, mut dependencies) = (Vec::new(), Vec::new(), Vec::new());
    for (key, value) in in_order(reader.table(&document)?) {
        match &*key.name {
            "machine" => reader.machine(value, &mut file)?,
            "pod" => {
                for (name, pod) in in_order(reader.table(value)?) {
                    dependencies.push(reader.dependencies(pod)?);
                    let (pod, used) = reader.pod(name, pod)?;
                    file.pods.push(pod);
                    uses.push(used);
                }
            }
            "currency" => {
                for (name, currency) in in_order(reader.table(value)?) {
                    written.push(reader.currency(name, currency)?);
                }
            }
            "disk" => reader.disk(value, &mut file)?,
            _ => return Err(reader.unknown(key, "[machine], [pod.NAME], [currency.NAME] and [disk.pool]")),
        }
    }
    reader.pay(&mut file, &written, &uses)?;
    up_pool::check(&file).map_err(|(at, text)| reader.error(at, text))?;
    file.settle(&dependencies).map_err(|(at, text)| reader.error(at, text))?;
    match file.pods.len() {
        0 => Err(reader.error(0, "no pod; write [pod.NAME] with program = \"…\"")),
        1..=POD_COUNT_MAX => Ok(file),
        count => Err(reader.error(0, format!("{count} pods; a machine has at most {POD_COUNT_MAX}"))),
    }
}

/// The entries of a table as they stand in the file.
fn in_order<'t, 'de>(table: &'t Table<'de>) -> Vec<(&'t Key<'de>, &'t Value<'de>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span.start);
    entries
}

struct Reader<'a> {
    text: &'a str,
    folder: &'a Path,
}

impl Reader<'_> {
    fn error(&self, at: usize, text: impl fmt::Display) -> FileError {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        FileError { line, text: text.to_string().split_whitespace().collect::<Vec<_>>().join(" ") }
    }

    fn wrong(&self, value: &Value<'_>, text: impl fmt::Display) -> FileError {
        self.error(value.span.start, text)
    }

    fn unknown(&self, key: &Key<'_>, known: &str) -> FileError {
        self.error(key.span.start, format!("{}: unknown; known here: {known}", key.name))
    }

    fn table<'v, 'de>(&self, value: &'v Value<'de>) -> Result<&'v Table<'de>> {
        value.as_table().ok_or_else(|| self.wrong(value, "a table is wanted here"))
    }

    fn string<'v>(&self, key: &Key<'_>, value: &'v Value<'_>) -> Result<&'v str> {
        let text = value.as_str().ok_or_else(|| self.wrong(value, format!("{}: a string is wanted", key.name)))?;
        match text.contains('\0') {
            true => Err(self.wrong(value, format!("{}: a NUL cannot be passed on", key.name))),
            false => Ok(text),
        }
    }

    fn integer(&self, key: &Key<'_>, value: &Value<'_>, low: i64, high: i64) -> Result<i64> {
        let number = value.as_integer().filter(|number| (low..=high).contains(number));
        number.ok_or_else(|| self.wrong(value, format!("{}: a whole number from {low} to {high} is wanted", key.name)))
    }

    fn boolean(&self, key: &Key<'_>, value: &Value<'_>) -> Result<bool> {
        value.as_bool().ok_or_else(|| self.wrong(value, format!("{}: true or false is wanted", key.name)))
    }

    /// A size as on the command line, or a number of bytes.
    fn memory(&self, key: &Key<'_>, value: &Value<'_>) -> Result<u64> {
        if let Some(bytes) = value.as_integer() {
            let range = MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX;
            let bytes = u64::try_from(bytes).ok().filter(|bytes| range.contains(bytes));
            return bytes.ok_or_else(|| self.wrong(value, format!("{}: a size such as \"64M\" is wanted", key.name)));
        }
        parse_memory(self.string(key, value)?).map_err(|why| self.wrong(value, format!("{}: {why}", key.name)))
    }

    /// What is guaranteed, and the most: `SIZE` for both, or `SIZE/SIZE`.
    fn memory_range(&self, key: &Key<'_>, value: &Value<'_>) -> Result<(u64, u64)> {
        if value.as_integer().is_some() {
            return self.memory(key, value).map(|bytes| (bytes, bytes));
        }
        parse_memory_range(self.string(key, value)?).map_err(|why| self.wrong(value, format!("{}: {why}", key.name)))
    }

    fn machine(&self, value: &Value<'_>, file: &mut UpFile) -> Result<()> {
        for (key, value) in in_order(self.table(value)?) {
            match &*key.name {
                "cpus" => file.cpus = self.integer(key, value, 1, CPU_COUNT_MAX)? as u8,
                "memory" => file.memory = Some(self.memory(key, value)?),
                "slice_ms" => file.slice_ms = Some(self.integer(key, value, 1, SLICE_MS_MAX)? as u8),
                "trust_devices" => file.trusts_devices = self.boolean(key, value)?,
                _ => return Err(self.unknown(key, "cpus, memory, slice_ms, trust_devices")),
            }
        }
        Ok(())
    }

    /// The table of disks that are no pod's own.
    fn disk(&self, value: &Value<'_>, file: &mut UpFile) -> Result<()> {
        for (key, value) in in_order(self.table(value)?) {
            if key.name != "pool" {
                return Err(self.unknown(key, "[disk.pool]"));
            }
            for (key, value) in in_order(self.table(value)?) {
                match &*key.name {
                    "image" => file.pool = Some(self.host_path(self.string(key, value)?)),
                    _ => return Err(self.unknown(key, "image")),
                }
            }
            if file.pool.is_none() {
                return Err(self.error(key.span.start, "[disk.pool] has no image; write image = \"…\""));
            }
        }
        Ok(())
    }

    /// The disks of a pod, each its own or an extent of the pool.
    fn disks(&self, key: &Key<'_>, value: &Value<'_>, disks: &mut DiskOptions) -> Result<()> {
        self.list(key, value, |_| Ok(()))?;
        for (place, entry) in value.as_array().into_iter().flatten().enumerate() {
            let text = self.string(key, entry)?;
            let wrong = |why| self.wrong(entry, format!("{}: {why}", key.name));
            match PoolDisk::parse(text) {
                Some(disk) => {
                    let disk = disk.map_err(wrong)?;
                    disks.extents.push(PoolDisk { place, at: entry.span.start, ..disk });
                }
                None => disks.disks.push(parse_disk(text.into(), self.folder).map_err(wrong)?),
            }
        }
        Ok(())
    }

    /// Enters the payers of pods and currencies.
    fn pay(&self, file: &mut UpFile, written: &[Written], uses: &[Option<Use>]) -> Result<()> {
        let wrong = |(at, text): up_currencies::Wrong| self.error(at, text);
        let is_pod = |it: &&Written| file.pods.iter().any(|pod| pod.name == it.own.name);
        if let Some(it) = written.iter().find(is_pod) {
            return Err(wrong((it.own.at, format!("{}: a pod and a currency cannot have one name", it.own.name))));
        }
        file.currencies = up_currencies::in_order(written).map_err(wrong)?;
        for (pod, used) in file.pods.iter_mut().zip(uses) {
            pod.payer = up_currencies::find(&file.currencies, used.as_ref())
                .map_err(|(at, text)| wrong((at, format!("currency: {text}"))))?;
        }
        Ok(())
    }

    /// What a pod's table says that it waits for.
    fn dependencies(&self, pod: &Value<'_>) -> Result<Vec<up_dependencies::Written>> {
        let entries = in_order(self.table(pod)?);
        let Some((key, value)) = entries.into_iter().find(|(key, _)| key.name == "depends_on") else {
            return Ok(Vec::new());
        };
        self.list(key, value, |text| up_dependencies::Written::parse(text, value.span.start))
    }

    fn name(&self, what: &str, name: &Key<'_>) -> Result<()> {
        if is_name(&name.name) {
            return Ok(());
        }
        let text = format!(
            "{}: a {what}'s name is 1 to {POD_NAME_BYTES_MAX} letters, digits, - and _, and does not begin with -",
            name.name
        );
        Err(self.error(name.span.start, text))
    }

    fn tickets(&self, key: &Key<'_>, value: &Value<'_>) -> Result<u64> {
        Ok(self.integer(key, value, 1, TICKET_AMOUNT_MAX as i64)? as u64)
    }

    fn currency_use(&self, key: &Key<'_>, value: &Value<'_>) -> Result<Use> {
        Ok(Use { name: self.string(key, value)?.to_owned(), at: value.span.start })
    }

    fn currency(&self, name: &Key<'_>, value: &Value<'_>) -> Result<Written> {
        self.name("currency", name)?;
        if name.name == BASE {
            return Err(self.error(name.span.start, "base: the machine's own currency, which nothing funds"));
        }
        let (mut tickets, mut payer) = (TICKETS_DEFAULT, None);
        for (key, value) in in_order(self.table(value)?) {
            match &*key.name {
                "tickets" => tickets = self.tickets(key, value)?,
                "funds" => payer = Some(self.currency_use(key, value)?),
                _ => return Err(self.unknown(key, "tickets, funds")),
            }
        }
        Ok(Written { own: Use { name: name.name.to_string(), at: name.span.start }, tickets, payer })
    }

    fn pod(&self, name: &Key<'_>, value: &Value<'_>) -> Result<(PodEntry, Option<Use>)> {
        self.name("pod", name)?;
        let memory = parse_memory(MEMORY_DEFAULT).map_err(|why| self.error(name.span.start, why))?;
        let mut options = plain_options(memory);
        let (mut program, mut arguments, mut memory_limit) = (None, Vec::new(), memory);
        let (mut tickets, mut currency, mut restart) = (TICKETS_DEFAULT, None, Restart::NO);
        for (key, value) in in_order(self.table(value)?) {
            match &*key.name {
                "program" => program = Some(self.program(key, value)?),
                "image" => options.image.image = Some(self.parsed(key, value, |text| parse_source(text.into()))?),
                "user" => options.image.user = Some(self.string(key, value)?.to_owned()),
                "args" => arguments = self.list(key, value, |text| Ok(OsString::from(text)))?,
                "root" => options.root = Some(self.host_path(self.string(key, value)?)),
                "pack" => options.pack = self.boolean(key, value)?,
                "system" => options.view.bare = !self.boolean(key, value)?,
                "volumes" => options.volumes = self.list(key, value, |text| parse_volume(text.into()))?,
                "with" => options.with = self.list(key, value, |text| parse_with(text.into()))?,
                "env" => options.environment = self.environment(value)?,
                "workdir" => options.working_directory = Some(self.string(key, value)?.into()),
                "memory" => (options.memory, memory_limit) = self.memory_range(key, value)?,
                "tickets" => tickets = self.tickets(key, value)?,
                "currency" => currency = Some(self.currency_use(key, value)?),
                "ports" => options.network.publish(self.list(key, value, parse_publications)?),
                "network" => options.network.network = Some(self.parsed(key, value, parse_choice)?),
                "host_access" => options.network.host_access = self.boolean(key, value)?,
                "dns" => options.network.dns = self.list(key, value, parse_name_server)?,
                "hosts" => options.network.add_host = self.list(key, value, parse_host_entry)?,
                "ip" => options.network.ip = self.list(key, value, parse_address)?,
                "gateway" => options.network.gateway = self.list(key, value, parse_router)?,
                "mac" => options.network.mac = Some(self.parsed(key, value, parse_hardware_address)?),
                "hostname" => options.network.hostname = Some(self.parsed(key, value, parse_hostname)?),
                "pcap" => options.network.pcap = Some(self.host_path(self.string(key, value)?)),
                "disk" => self.disks(key, value, &mut options.disks)?,
                "io_order" => options.disks.order = Some(self.parsed(key, value, parse_order)?),
                "read_only" => options.read_only = self.boolean(key, value)?,
                "tmpfs" => options.temporaries = self.list(key, value, parse_temporary)?,
                "stop_signal" => options.image.stop_signal = Some(self.parsed(key, value, parse_signal)?),
                "health" => options.image.health.health_cmd = Some(self.string(key, value)?.to_owned()),
                "health_interval" => {
                    options.image.health.health_interval = Some(self.parsed(key, value, parse_seconds)?);
                }
                "drivers" => options.drivers = self.list(key, value, parse_driver)?,
                "restart" => restart = self.parsed(key, value, Restart::parse)?,
                // Read with those of all pods.
                "depends_on" => {}
                _ => return Err(self.unknown(key, POD_KEYS)),
            }
        }
        if program.is_none() && options.image.image.is_none() {
            let text = format!("[pod.{}] has no program; write program = \"…\"", name.name);
            return Err(self.error(name.span.start, text));
        }
        if options.image.image.is_none() && options.working_directory.is_none() {
            options.working_directory = Some("/".into());
        }
        if options.network.network.is_none() && options.network.publications().next().is_none() {
            options.network.network = Some(NetworkChoice::None);
        }
        if options.pack && options.root.is_none() {
            return Err(self.error(name.span.start, format!("[pod.{}]: pack needs a root", name.name)));
        }
        for volume in &mut options.volumes {
            volume.host = absolute(&volume.host, self.folder);
        }
        for with in &mut options.with {
            with.host = absolute(&with.host, self.folder);
        }
        let words = program.into_iter().chain(arguments).collect();
        let name = name.name.to_string();
        let dependencies = Vec::new();
        let entry = PodEntry { name, words, options, memory_limit, tickets, payer: None, restart, dependencies };
        Ok((entry, currency))
    }

    fn program(&self, key: &Key<'_>, value: &Value<'_>) -> Result<OsString> {
        match self.string(key, value)? {
            "" => Err(self.wrong(value, "program is empty")),
            text => Ok(text.into()),
        }
    }

    /// A string that `parse` understands.
    fn parsed<T, E: std::fmt::Display>(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        parse: impl Fn(&str) -> std::result::Result<T, E>,
    ) -> Result<T> {
        parse(self.string(key, value)?).map_err(|why| self.wrong(value, format!("{}: {why}", key.name)))
    }

    fn host_path(&self, text: &str) -> PathBuf {
        absolute(Path::new(text), self.folder)
    }

    fn list<T>(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        read: impl Fn(&str) -> std::result::Result<T, String>,
    ) -> Result<Vec<T>> {
        let kind = || self.wrong(value, format!("{}: a list of strings is wanted", key.name));
        let entries = value.as_array().ok_or_else(kind)?;
        let one = |entry: &Value<'_>| {
            read(self.string(key, entry)?).map_err(|why| self.wrong(entry, format!("{}: {why}", key.name)))
        };
        entries.iter().map(one).collect()
    }

    fn environment(&self, value: &Value<'_>) -> Result<Vec<OsString>> {
        let mut variables = Vec::new();
        for (name, value) in in_order(self.table(value)?) {
            if name.name.is_empty() || name.name.contains(['=', '\0']) {
                return Err(self.error(name.span.start, "a variable's name is not empty and has no ="));
            }
            variables.push(format!("{}={}", name.name, self.string(name, value)?).into());
        }
        Ok(variables)
    }
}

/// The options of a pod that says nothing.
pub(crate) fn plain_options(memory: u64) -> PodOptions {
    PodOptions {
        fault_disk_domain: None,
        fault_net_domain: None,
        root: None,
        image: ImageOptions::default(),
        pack: false,
        volumes: Vec::new(),
        with: Vec::new(),
        write_root: false,
        read_only: false,
        temporaries: Vec::new(),
        rights: aegis_link::rights::Rights::default(),
        environment: Vec::new(),
        view: ViewOptions { here: None, bare: true },
        working_directory: None,
        memory,
        network: NetworkOptions::default(),
        drivers: Vec::new(),
        disks: DiskOptions::default(),
    }
}

#[cfg(test)]
#[path = "up_file_tests.rs"]
mod tests;
