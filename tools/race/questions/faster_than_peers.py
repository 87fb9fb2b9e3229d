"""Does this project train faster than the libraries that people use?"""

from tools.race.races import QUESTION

__all__ = ["QUESTION"]
