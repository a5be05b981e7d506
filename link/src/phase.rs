//! A pod's life, as the manager, the tool and a command that asks speak of it.
//!
//! A pod is made and starts; its library OS greets and its program runs. It ends by itself, or is told to end and then
//! ends or is taken apart; it says how, or is lost without a word (the kernel stopped it, or it was taken apart). One
//! that ended or was lost may be waited for and made anew; then its life begins again. What else each side knows of a
//! phase stands in an enumeration of its own, whose values are these: `Life` of the tool's `relay::pod_link`, `Life` of
//! the manager.

use crate::numbered::numbered;

numbered! {
    /// Where in its life a pod is.
    #[derive(Default)]
    pub enum PodPhase: u32 {
        /// It is over, and the library OS said how, or nobody asks how any more.
        #[default]
        Ended = 0,
        /// The library OS has greeted; to the manager, which hears no greeting, the pod is there.
        Running = 1,
        /// It is over, and may be made anew.
        Waiting = 2,
        /// It was made, and its library OS has not greeted.
        Starting = 3,
        /// It is over, and the library OS did not say how.
        Lost = 4,
        /// It was told to end, and has not.
        Ending = 5,
    }
}

impl PodPhase {
    const ALL: [Self; 6] = [Self::Starting, Self::Running, Self::Ending, Self::Waiting, Self::Ended, Self::Lost];

    /// The word for it in messages and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Ending => "ending",
            Self::Waiting => "waiting",
            Self::Ended => "ended",
            Self::Lost => "stopped",
        }
    }

    /// The phase that this word is for.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == name)
    }

    /// Nothing of the pod is left that runs.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Waiting | Self::Ended | Self::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::PodPhase;

    #[test]
    fn numbers_and_names_are_read_back() {
        for phase in PodPhase::ALL {
            assert_eq!(PodPhase::from_number(phase as u32), Some(phase));
            assert_eq!(PodPhase::from_name(phase.name()), Some(phase));
            assert_eq!(phase.is_over(), !["starting", "running", "ending"].contains(&phase.name()));
        }
        assert_eq!((PodPhase::from_number(99), PodPhase::from_name("silent")), (None, None));
    }
}
