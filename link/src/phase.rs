//! A pod's life, as the manager, the tool and a command that asks speak of it.
//!
//! A pod is made and starts; its library OS greets and its program runs. It ends by saying how, or is lost without a
//! word (the kernel stopped it, or it was taken apart). One that ended or was lost may be waited for and made anew;
//! then its life begins again.

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
    }
}

impl PodPhase {
    /// The word for it in messages and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Ended => "ended",
            Self::Lost => "stopped",
        }
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
    fn numbers_are_read_back() {
        for phase in [PodPhase::Ended, PodPhase::Running, PodPhase::Waiting, PodPhase::Starting, PodPhase::Lost] {
            assert_eq!(PodPhase::from_number(phase as u32), Some(phase));
            assert_eq!(phase.is_over(), !["starting", "running"].contains(&phase.name()));
        }
        assert_eq!(PodPhase::from_number(99), None);
    }
}
