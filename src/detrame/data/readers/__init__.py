"""One file a form in which data sets come. A reader returns train and test; it never unpickles and never writes."""
