"""What results were made of: digests of files, the code that a job runs, the record of a job."""
