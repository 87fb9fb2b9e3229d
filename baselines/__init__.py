"""Networks that the Vision Transformer is compared with: one file per family, found by its file name. Importing this
package imports none of these files."""
