"""From verdicts to gradients: rewards, advantages and the policy loss."""
