//! The tree of control groups: names, what each hands on, and the rules of cgroup v2 (kernel.org, `cgroup-v2.rst`).
//!
//! One lock covers the tree. It is taken before those of processes and of the scheduler. There is one controller,
//! `cpu`: where a group hands it on (`cgroup.subtree_control`), the groups below compete as groups
//! ([`Scheduler::set_group_funded`]). Moving a process and removing a group both hold the lock, so nobody is moved to a
//! group that is gone.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::{Errno, Result};
use crate::sync::{Mutex, MutexGuard};
use crate::task::schedule::{GROUP_WEIGHT_DEFAULT, GroupId, Limit, Scheduler, Usage};

/// The number of the group that is the pod. Numbers are not used again.
pub const ROOT: u64 = 1;
/// What `cpu.max` has for a period unless told otherwise.
const PERIOD_DEFAULT_US: u64 = 100_000;
const PERIOD_US: core::ops::RangeInclusive<u64> = 1000..=1_000_000;
const QUOTA_MIN_US: u64 = 1000;
/// Deepest group: paths are walked from the end.
const DEPTH_MAX: usize = 32;

/// The members of groups, from the personality. Called with the tree's lock held.
pub trait GroupProvider: Send + Sync {
    /// Monotonic time.
    fn now_ns(&self) -> u64;
    /// The scheduler of the pod's tasks.
    ///
    /// # Errors
    /// `ENODEV`: nobody does yet.
    fn scheduler(&self) -> Result<Arc<Scheduler>>;
    /// Processes in a group, ascending.
    fn processes(&self, group: u64) -> Vec<u32>;
    /// Threads in a group, ascending.
    fn threads(&self, group: u64) -> Vec<u32>;
    /// Moves a process, or the caller's if 0 is given, with all its threads.
    ///
    /// # Errors
    /// `ESRCH`.
    fn attach(&self, process: u32, group: u64, tasks: GroupId) -> Result<()>;
    /// The pod's memory, for the root.
    ///
    /// # Errors
    /// `ENODEV`: nobody knows yet.
    fn memory(&self) -> Result<MemoryUse>;
}

/// What a pod has of memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Programs' pages and files.
    pub current: u64,
    /// Of these, private pages of programs.
    pub anonymous: u64,
    /// What nobody takes from it.
    pub guaranteed: u64,
    /// What it can have at most.
    pub limit: u64,
    /// What exos has for itself, stacks apart; not in `current`.
    pub structures: u64,
    /// Stacks of threads in exos; not in `current`.
    pub stacks: u64,
    /// How often memory came to its end.
    pub end_count: u64,
    /// Processes that were ended for it.
    pub killed_count: u64,
}

/// A group.
struct Node {
    id: GroupId,
    parent: u64,
    name: Vec<u8>,
    children: BTreeMap<Vec<u8>, u64>,
    /// `cpu` is in its `cgroup.subtree_control`.
    hands_on: bool,
    /// What it weighs in its parent.
    amount: u64,
    quota_us: Option<u64>,
    period_us: u64,
}

impl Node {
    fn new(id: GroupId, parent: u64, name: Vec<u8>) -> Self {
        let (amount, period_us) = (GROUP_WEIGHT_DEFAULT, PERIOD_DEFAULT_US);
        Self { id, parent, name, children: BTreeMap::new(), hands_on: false, amount, quota_us: None, period_us }
    }
}

/// The nodes by number.
pub(super) struct Nodes<'t> {
    nodes: MutexGuard<'t, BTreeMap<u64, Node>>,
    next: &'t core::sync::atomic::AtomicU64,
    pub(super) provider: &'t dyn GroupProvider,
}

/// The control groups of a pod.
pub struct ControlGroups {
    nodes: Mutex<BTreeMap<u64, Node>>,
    next: core::sync::atomic::AtomicU64,
    provider: Arc<dyn GroupProvider>,
}

impl ControlGroups {
    /// The pod alone.
    #[must_use]
    pub fn new(provider: Arc<dyn GroupProvider>) -> Arc<Self> {
        let root = Node::new(GroupId::ROOT, ROOT, Vec::new());
        let nodes = Mutex::new(BTreeMap::from([(ROOT, root)]));
        Arc::new(Self { nodes, next: core::sync::atomic::AtomicU64::new(ROOT + 1), provider })
    }

    pub(super) fn lock(&self) -> Nodes<'_> {
        Nodes { nodes: self.nodes.lock(), next: &self.next, provider: &*self.provider }
    }

    /// What the scheduler calls the group at a path from the pod.
    #[must_use]
    pub fn at_path(&self, path: &[u8]) -> Option<GroupId> {
        let nodes = self.nodes.lock();
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let found = names.try_fold(ROOT, |at, name| nodes.get(&at)?.children.get(name).copied())?;
        nodes.get(&found).map(|node| node.id)
    }

    /// The path of what the scheduler calls so.
    #[must_use]
    pub fn path_of(&self, id: GroupId) -> Option<Vec<u8>> {
        let group = self.nodes.lock().iter().find(|(_, node)| node.id == id).map(|(group, _)| *group)?;
        self.path(group)
    }

    /// A group's path; `None`: it was removed.
    #[must_use]
    pub fn path(&self, group: u64) -> Option<Vec<u8>> {
        let nodes = self.nodes.lock();
        let mut names = Vec::new();
        let mut at = group;
        while at != ROOT {
            let node = nodes.get(&at)?;
            names.push(node.name.as_slice());
            at = node.parent;
        }
        names.reverse();
        Some([b"/", names.join(&b'/').as_slice()].concat())
    }
}

impl Nodes<'_> {
    fn get(&self, group: u64) -> Result<&Node> {
        self.nodes.get(&group).ok_or(Errno::ENODEV)
    }

    fn get_mut(&mut self, group: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&group).ok_or(Errno::ENODEV)
    }

    fn has_tasks(&self, group: u64) -> bool {
        group == ROOT || !self.provider.processes(group).is_empty()
    }

    /// Whether a process is in it or below it.
    pub(super) fn is_populated(&self, group: u64) -> bool {
        let below = || self.get(group).is_ok_and(|node| node.children.values().any(|child| self.is_populated(*child)));
        self.has_tasks(group) || below()
    }

    /// Whether `cpu` is there to be handed on.
    pub(super) fn is_controlled(&self, group: u64) -> bool {
        group == ROOT || self.get(group).and_then(|node| self.get(node.parent)).is_ok_and(|parent| parent.hands_on)
    }

    pub(super) fn hands_on(&self, group: u64) -> bool {
        self.get(group).is_ok_and(|node| node.hands_on)
    }

    /// It has processes of its own and hands `cpu` on: those below it would have to be threads of them.
    pub(super) fn is_thread_root(&self, group: u64) -> bool {
        group != ROOT && self.hands_on(group) && self.has_tasks(group)
    }

    /// Whether processes can be in it for all that is above it.
    pub(super) fn is_valid_domain(&self, group: u64) -> bool {
        let mut at = group;
        while at != ROOT {
            let Ok(node) = self.get(at) else { return false };
            at = node.parent;
            if self.is_thread_root(at) {
                return false;
            }
        }
        true
    }

    /// Whether it can have processes beside groups: `cpu` alone is handed on, so only others below it forbid that.
    fn can_be_thread_root(&self, group: u64) -> bool {
        group == ROOT
            || self.get(group).is_ok_and(|node| !node.children.values().any(|child| self.is_populated(*child)))
    }

    pub(super) fn children(&self, group: u64) -> Vec<(Vec<u8>, u64)> {
        let node = self.get(group);
        node.map_or_else(|_| Vec::new(), |node| node.children.iter().map(|(name, id)| (name.clone(), *id)).collect())
    }

    pub(super) fn child(&self, group: u64, name: &[u8]) -> Option<u64> {
        self.get(group).ok()?.children.get(name).copied()
    }

    pub(super) fn exists(&self, group: u64) -> bool {
        self.nodes.contains_key(&group)
    }

    /// Groups below it.
    pub(super) fn descendant_count(&self, group: u64) -> usize {
        let children = self.children(group);
        children.len() + children.iter().map(|(_, child)| self.descendant_count(*child)).sum::<usize>()
    }

    fn depth(&self, group: u64) -> usize {
        let above = |group: &u64| self.get(*group).ok().map(|node| node.parent).filter(|_| *group != ROOT);
        core::iter::successors(Some(group), above).count()
    }

    /// `mkdir`. `EINVAL`: an end of line in the name. `EAGAIN`: too many or too deep. `ENOENT`: `group` was removed.
    pub(super) fn make(&mut self, group: u64, name: &[u8]) -> Result<u64> {
        let parent = self.get(group).map_err(|_| Errno::ENOENT)?;
        if parent.children.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        if name.contains(&b'\n') {
            return Err(Errno::EINVAL);
        }
        if self.depth(group) >= DEPTH_MAX {
            return Err(Errno::EAGAIN);
        }
        let scheduler = self.provider.scheduler()?;
        let (above, hands_on) = (parent.id, parent.hands_on);
        let id = scheduler.create_group(above)?;
        if hands_on && let Err(error) = scheduler.set_group_funded(id, true) {
            scheduler.remove_group(id)?;
            return Err(error);
        }
        let number = self.next.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        self.nodes.insert(number, Node::new(id, group, name.to_vec()));
        self.get_mut(group)?.children.insert(name.to_vec(), number);
        Ok(number)
    }

    /// `rmdir`. `EBUSY`: there are processes or groups in it.
    pub(super) fn remove(&mut self, group: u64, name: &[u8]) -> Result<()> {
        let number = self.child(group, name).ok_or(Errno::ENOENT)?;
        let node = self.get(number)?;
        let id = node.id;
        if !node.children.is_empty() || self.has_tasks(number) {
            return Err(Errno::EBUSY);
        }
        let scheduler = self.provider.scheduler()?;
        if scheduler.group_task_count(id) != 0 {
            // A thread of a process that has ended is just leaving.
            return Err(Errno::EBUSY);
        }
        self.stop_control(&scheduler, &[number])?;
        scheduler.remove_group(id)?;
        self.nodes.remove(&number);
        self.get_mut(group)?.children.remove(name);
        Ok(())
    }

    /// They compete no more as groups, and what was set is forgotten: of all, or of none.
    fn stop_control(&mut self, scheduler: &Scheduler, groups: &[u64]) -> Result<()> {
        let ids = groups.iter().map(|group| Ok(self.get(*group)?.id)).collect::<Result<Vec<_>>>()?;
        scheduler.unfund_groups(&ids, self.provider.now_ns())?;
        for group in groups {
            let node = self.get_mut(*group)?;
            (node.amount, node.quota_us, node.period_us) = (GROUP_WEIGHT_DEFAULT, None, PERIOD_DEFAULT_US);
        }
        Ok(())
    }

    /// Writes `cgroup.subtree_control`.
    pub(super) fn set_control(&mut self, group: u64, text: &str) -> Result<()> {
        let mut wanted = None;
        for word in text.split_ascii_whitespace() {
            wanted = match word {
                "+cpu" => Some(true),
                "-cpu" => Some(false),
                _ => return Err(Errno::EINVAL),
            };
        }
        let Some(wanted) = wanted.filter(|wanted| *wanted != self.hands_on(group)) else {
            return self.get(group).map(|_| ());
        };
        let children: Vec<u64> = self.children(group).into_iter().map(|(_, child)| child).collect();
        let scheduler = self.provider.scheduler()?;
        if !wanted {
            if children.iter().any(|child| self.hands_on(*child)) {
                return Err(Errno::EBUSY);
            }
            self.stop_control(&scheduler, &children)?;
            self.get_mut(group)?.hands_on = false;
            return Ok(());
        }
        if !self.is_controlled(group) {
            return Err(Errno::ENOENT);
        }
        if !self.is_valid_domain(group) {
            return Err(Errno::EOPNOTSUPP);
        }
        if !self.can_be_thread_root(group) && self.has_tasks(group) {
            return Err(Errno::EBUSY);
        }
        for (index, child) in children.iter().enumerate() {
            if let Err(error) = scheduler.set_group_funded(self.get(*child)?.id, true) {
                self.stop_control(&scheduler, &children[..index])?;
                return Err(error);
            }
        }
        self.get_mut(group)?.hands_on = true;
        Ok(())
    }

    /// Writes `cgroup.procs`.
    pub(super) fn attach(&mut self, group: u64, process: u32) -> Result<()> {
        let id = self.get(group)?.id;
        if !self.is_valid_domain(group) {
            return Err(Errno::EOPNOTSUPP);
        }
        if !self.can_be_thread_root(group) && self.hands_on(group) {
            return Err(Errno::EBUSY);
        }
        self.provider.attach(process, group, id)
    }

    /// Writes `cgroup.threads`: a thread stays with its process.
    pub(super) fn attach_thread(&self, group: u64, thread: u32) -> Result<()> {
        if thread == 0 || self.provider.threads(group).contains(&thread) { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }

    /// What it weighs in its parent.
    pub(super) fn amount(&self, group: u64) -> Result<u64> {
        Ok(self.get(group)?.amount)
    }

    pub(super) fn set_amount(&mut self, group: u64, amount: u64) -> Result<()> {
        let id = self.get(group)?.id;
        self.provider.scheduler()?.set_group_weight(id, amount)?;
        self.get_mut(group)?.amount = amount;
        Ok(())
    }

    /// `cpu.max`: quota and period in microseconds.
    pub(super) fn limit(&self, group: u64) -> Result<(Option<u64>, u64)> {
        self.get(group).map(|node| (node.quota_us, node.period_us))
    }

    pub(super) fn set_limit(&mut self, group: u64, quota_us: Option<u64>, period_us: Option<u64>) -> Result<()> {
        let node = self.get(group)?;
        let period_us = period_us.unwrap_or(node.period_us);
        if quota_us.is_some_and(|quota_us| quota_us < QUOTA_MIN_US) || !PERIOD_US.contains(&period_us) {
            return Err(Errno::EINVAL);
        }
        let limit = match quota_us {
            Some(quota_us) => {
                let quota_ns = quota_us.checked_mul(1000).ok_or(Errno::EINVAL)?;
                Some(Limit { quota_ns, period_ns: period_us * 1000 })
            }
            None => None,
        };
        self.provider.scheduler()?.set_group_limit(node.id, limit, self.provider.now_ns())?;
        let node = self.get_mut(group)?;
        (node.quota_us, node.period_us) = (quota_us, period_us);
        Ok(())
    }

    /// What it and all below it have used.
    pub(super) fn usage(&self, group: u64) -> Result<Usage> {
        self.provider.scheduler()?.group_usage(self.get(group)?.id, self.provider.now_ns())
    }
}
