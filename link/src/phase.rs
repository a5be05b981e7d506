//! A pod's life, as the manager, the tool and a command that asks speak of it.
//!
//! A pod is made and starts; its library OS greets and its program runs. It ends by saying how, or is lost without a
//! word (the kernel stopped it, or it was taken apart). One that ended or was lost may be waited for and made anew;
//! then its life begins again.

/// Where in its life a pod is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum PodPhase {
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

    /// The phase of this number; of one that is not known nothing can be expected any more.
    #[must_use]
    pub fn from_word(word: u32) -> Self {
        let all = [Self::Running, Self::Waiting, Self::Starting, Self::Lost];
        all.into_iter().find(|phase| *phase as u32 == word).unwrap_or(Self::Ended)
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
            assert_eq!(PodPhase::from_word(phase as u32), phase);
            assert_eq!(phase.is_over(), !["starting", "running"].contains(&phase.name()));
        }
        assert!(PodPhase::from_word(99).is_over());
    }
}
