"""The same training in other libraries, timed in turns: plug-ins beside the package.

python -m bench.run --suite peers --plugins tools/race      in a clone; pip install -e '.[peers]' brings the libraries
"""
