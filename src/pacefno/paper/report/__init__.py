"""The report: tables, figures and one HTML page, all made from the result files."""
