"""A worker of a vector env that listens: ``python -m rollhouse.hosted.join FOLDER [PLACE]``, started by whoever wants it.

It connects in the folder that ``rollhouse.vectorize`` was given as ``listen``, runs the lanes of that place, or of any that is free, and
ends when the vector env is closed, ends or gives it up. It makes the envs with what this interpreter has, in this folder and environment.
"""

from rollhouse.hosted.worker import join

if __name__ == "__main__":
    # Nothing else is here: a worker has its parent's definitions in its main module.
    join()
