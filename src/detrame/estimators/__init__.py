"""The scikit-learn way: :class:`DeTraMeClassifier`, and the single-layer methods the paper compares with."""

from detrame.estimators.baselines import AnalysisClassifier, SynthesisClassifier
from detrame.estimators.classifier import DeTraMeClassifier
from detrame.estimators.task_driven import TaskDrivenClassifier

__all__ = ["AnalysisClassifier", "DeTraMeClassifier", "SynthesisClassifier", "TaskDrivenClassifier"]
