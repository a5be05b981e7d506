//! Which pods of a machine wait for which: `depends_on` of `aegis up`'s file and of compose's.
//!
//! Pure. A pod with dependencies is not started before each of them has come so far as its [`Condition`] says. Files
//! name pods in any order; what comes out has places for names, and no pod waits for itself, not even by others.

/// How far a pod has to have come. The words are compose's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Its library OS has greeted.
    Started,
    /// Its health check succeeds.
    Healthy,
    /// Its program has ended with status 0.
    Completed,
}

impl Condition {
    const ALL: [Self; 3] = [Self::Started, Self::Healthy, Self::Completed];

    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Started => "service_started",
            Self::Healthy => "service_healthy",
            Self::Completed => "service_completed_successfully",
        }
    }

    /// Reads the word.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|it| it.name() == text).ok_or_else(|| {
            let [started, healthy, completed] = Self::ALL.map(Self::name);
            format!("{text}: {started}, {healthy} or {completed} is wanted")
        })
    }
}

/// What a pod waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The other pod, by its place among all.
    pub(crate) pod: usize,
    pub(crate) condition: Condition,
    /// Without it the pod is not started; otherwise it waits as long as there is hope.
    pub(crate) is_required: bool,
}

/// A dependency as a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) name: String,
    pub(crate) condition: Condition,
    pub(crate) is_required: bool,
    /// Where it stands: a line, or bytes.
    pub(crate) at: usize,
}

impl Written {
    /// Reads `NAME` or `NAME:CONDITION`.
    pub(crate) fn parse(text: &str, at: usize) -> Result<Self, String> {
        let (name, word) = text.split_once(':').map_or((text, None), |(name, word)| (name, Some(word)));
        let condition = word.map_or(Ok(Condition::Started), Condition::parse)?;
        Ok(Self { name: name.into(), condition, is_required: true, at })
    }
}

/// Finds the pods that are waited for, for each of these pods.
///
/// # Errors
/// A pod that is not there, or a pod that waits for itself; where, and what.
pub(crate) fn settle(names: &[&str], written: &[Vec<Written>]) -> Result<Vec<Vec<Dependency>>, (usize, String)> {
    let mut all = Vec::new();
    for list in written {
        let mut found = Vec::new();
        for it in list {
            match names.iter().position(|name| *name == it.name) {
                Some(pod) => {
                    found.push(Dependency { pod, condition: it.condition, is_required: it.is_required });
                }
                None if it.is_required => return Err((it.at, format!("depends_on: {}: there is none", it.name))),
                None => {}
            }
        }
        all.push(found);
    }
    // Each round takes those out that wait for none of those left.
    let mut left: Vec<usize> = (0..all.len()).collect();
    loop {
        let waits = |pod: &usize| all[*pod].iter().any(|it| left.contains(&it.pod));
        let waiting: Vec<usize> = left.iter().copied().filter(waits).collect();
        if waiting.len() == left.len() {
            break;
        }
        left = waiting;
    }
    match left.first() {
        None => Ok(all),
        Some(first) => {
            let text = format!("depends_on: {} waits for itself, perhaps by others", names[*first]);
            Err((written[*first].first().map_or(0, |it| it.at), text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Condition, Dependency, Written, settle};

    fn list(texts: &[&str]) -> Vec<Written> {
        texts.iter().zip(1..).map(|(text, at)| Written::parse(text, at).expect("sound")).collect()
    }

    #[test]
    fn names_become_places() {
        let written = [list(&["b:service_healthy", "c:service_completed_successfully"]), list(&["c"]), list(&[])];
        let found = settle(&["a", "b", "c"], &written).expect("sound");
        let one = |pod, condition| Dependency { pod, condition, is_required: true };
        assert_eq!(found[0], [one(1, Condition::Healthy), one(2, Condition::Completed)]);
        assert_eq!((found[1].as_slice(), found[2].len()), (&[one(2, Condition::Started)][..], 0));
        for wrong in ["a:", "a:healthy", "a:service_started:x"] {
            assert!(Written::parse(wrong, 0).is_err(), "{wrong}");
        }
    }

    #[test]
    fn none_waits_for_itself_or_for_what_is_not_there() {
        for (written, part) in [
            ([list(&["x"]), list(&[])], "x: there is none"),
            ([list(&["a"]), list(&[])], "a waits for itself"),
            ([list(&["b"]), list(&["a"])], "a waits for itself"),
        ] {
            let (at, why) = settle(&["a", "b"], &written).expect_err(part);
            assert!(at == 1 && why.contains(part), "{why}");
        }
        let mut absent = list(&["x"]);
        absent[0].is_required = false;
        assert_eq!(settle(&["a", "b"], &[absent, list(&[])]), Ok(vec![vec![], vec![]]));
    }
}
